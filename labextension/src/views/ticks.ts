/** Moments in words, all in the unit of the largest. */
export function ticks(splits: number[]): string[] {
  const largest = Math.max(...splits.map(Math.abs));
  const [scale, unit] = largest >= 1e9 ? [1e9, 's'] : largest >= 1e6 ? [1e6, 'ms'] : [1e3, 'µs'];
  const apart = splits.length > 1 ? Math.abs(splits[1]! - splits[0]!) / scale : 1;
  const digits = Math.max(0, Math.min(9, Math.ceil(-Math.log10(apart) - 1e-9)));
  return splits.map(value => `${(value / scale).toFixed(digits)} ${unit}`);
}

/** The least of 1, 2, 5, 10, 20 … that is not below a distance: how far apart the lines of a scale are. */
export function apart(least: number): number {
  const power = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 5, 10].map(digit => digit * power).find(one => one >= least) ?? least;
}
