/** Rows of numbers, the last `capacity` of them, in one piece of memory that never grows. */
export class Ring {
  constructor(
    readonly capacity: number,
    readonly columns: number
  ) {
    if (capacity < 1 || columns < 1) {
      throw new RangeError('A ring has at least one row and one column.');
    }
    this._values = new Float64Array(capacity * columns);
  }

  /** How many rows there are. */
  get length(): number {
    return this._length;
  }

  /** Append a row; when full, the oldest goes. Columns that are not given are 0. */
  push(row: ArrayLike<number>): void {
    const at = ((this._start + this._length) % this.capacity) * this.columns;
    for (let column = 0; column < this.columns; column++) {
      this._values[at + column] = row[column] ?? 0;
    }
    if (this._length < this.capacity) {
      this._length += 1;
    } else {
      this._start = (this._start + 1) % this.capacity;
    }
  }

  /** A figure, by row from the oldest; the last row is -1. NaN where there is none. */
  at(row: number, column: number): number {
    const place = row < 0 ? this._length + row : row;
    if (place < 0 || place >= this._length || column < 0 || column >= this.columns) {
      return NaN;
    }
    return this._values[((this._start + place) % this.capacity) * this.columns + column]!;
  }

  /** A column from the oldest row on, for those rows. */
  column(column: number, first = 0): number[] {
    const from = Math.max(0, first);
    const found = new Array<number>(Math.max(0, this._length - from));
    let place = (this._start + from) % this.capacity;
    for (let row = 0; row < found.length; row++) {
      found[row] = this._values[place * this.columns + column] ?? NaN;
      place = place + 1 === this.capacity ? 0 : place + 1;
    }
    return found;
  }

  /** Another one with the same rows. */
  copy(): Ring {
    const made = new Ring(this.capacity, this.columns);
    made._values.set(this._values);
    made._start = this._start;
    made._length = this._length;
    return made;
  }

  clear(): void {
    this._start = 0;
    this._length = 0;
  }

  private _values: Float64Array;
  private _start = 0;
  private _length = 0;
}
