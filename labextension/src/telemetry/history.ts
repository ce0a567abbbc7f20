/**
 * A device's rows over simulated time: no more than `capacity`, and with every extreme that a figure can show.
 *
 * When there are too many, time is divided into stretches of the same length, and of each the row with the least, the
 * one with the most and the last one are kept; fakegpu_lab/driver/memory_report/memory_curve.py does the same.
 */
export class History {
  constructor(
    readonly capacity: number,
    readonly columns: number,
    /** The column of the time, and the one whose extremes count. */
    private _time: number,
    private _value: number
  ) {
    this._values = new Float64Array(capacity * columns);
  }

  /** How many rows there are. */
  get length(): number {
    return this._length;
  }

  /** Append a row. */
  push(row: ArrayLike<number>): void {
    if (this._length === this.capacity) {
      this._thin();
    }
    const start = this._length * this.columns;
    for (let column = 0; column < this.columns; column++) {
      this._values[start + column] = row[column] ?? 0;
    }
    this._length += 1;
  }

  /** A figure, by row from the oldest; the last row is -1. NaN where there is none. */
  at(row: number, column: number): number {
    const place = row < 0 ? this._length + row : row;
    return place < 0 || place >= this._length || column < 0 || column >= this.columns
      ? NaN
      : this._values[place * this.columns + column]!;
  }

  /** A column from the oldest row on. */
  column(column: number): number[] {
    const found = new Array<number>(this._length);
    for (let row = 0; row < found.length; row++) {
      found[row] = this._values[row * this.columns + column] ?? NaN;
    }
    return found;
  }

  /** Another one with the same rows. */
  copy(): History {
    const made = new History(this.capacity, this.columns, this._time, this._value);
    made._values.set(this._values);
    made._length = this._length;
    return made;
  }

  private _thin(): void {
    const began = this.at(0, this._time);
    const wide = Math.max(1, (this.at(-1, this._time) - began + 1) / Math.floor(this.capacity / 6));
    const stretch = (row: number): number => Math.floor((this.at(row, this._time) - began) / wide);
    let kept = 0;
    let first = 0;
    for (let row = 1; row <= this._length; row++) {
      if (row === this._length || stretch(row) !== stretch(first)) {
        let [low, high] = [first, first];
        for (let inside = first; inside < row; inside++) {
          low = this.at(inside, this._value) < this.at(low, this._value) ? inside : low;
          high = this.at(inside, this._value) > this.at(high, this._value) ? inside : high;
        }
        for (const place of [...new Set([first === 0 ? 0 : low, low, high, row - 1])].sort(
          (a, b) => a - b
        )) {
          this._values.copyWithin(
            kept * this.columns,
            place * this.columns,
            (place + 1) * this.columns
          );
          kept += 1;
        }
        first = row;
      }
    }
    this._length = kept;
  }

  private _values: Float64Array;
  private _length = 0;
}
