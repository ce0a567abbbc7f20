/** Curves of steps as columns of pixels: what a screen can show of them, however many moments they have. */

/** Some columns side by side in which a curve has the same lowest and highest value: the first, how many, the two. */
export type Run = (at: number, wide: number, low: number, high: number) => void;

/**
 * A curve that keeps each value until the next moment, between two moments on so many columns; what is found is told
 * from left to right. Within a column all its values are kept, and so is the rise or fall between two; null is a gap.
 * The last value has the column of its moment, and the moment `to` has the last column.
 *
 * Drawn as rectangles these cost a hundredth of what the stroke of a path through all moments does.
 */
export function columns(
  moments: ArrayLike<number>,
  values: ArrayLike<number | null>,
  from: number,
  to: number,
  wide: number,
  tell: Run
): void {
  const columnOf = (moment: number): number =>
    moment === to ? wide - 1 : Math.floor(((moment - from) / (to - from)) * wide);
  // The column that more values may fall into.
  let open = -1;
  let least = 0;
  let most = 0;
  const close = (): void => {
    if (open >= 0) {
      tell(open, 1, least, most);
      open = -1;
    }
  };
  const column = (at: number, low: number, high: number): void => {
    if (open === at) {
      least = Math.min(least, low);
      most = Math.max(most, high);
    } else if (at >= 0 && at < wide) {
      close();
      open = at;
      least = low;
      most = high;
    }
  };
  let before: number | null = null;
  for (let place = 0; place < moments.length; place++) {
    const value = values[place] ?? null;
    if (value !== null) {
      const first = columnOf(moments[place]!);
      const last = place + 1 < moments.length ? columnOf(moments[place + 1]!) : first;
      column(first, Math.min(value, before ?? value), Math.max(value, before ?? value));
      const [left, right] = [Math.max(first + 1, 0), Math.min(last, wide)];
      if (right > left) {
        close();
        tell(left, right - left, value, value);
      }
      if (last > first) {
        column(last, value, value);
      }
    }
    before = value;
  }
  close();
}
