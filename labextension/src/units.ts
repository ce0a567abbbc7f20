/** Numbers as people read them: the same words as `%fakegpu` prints. */

// Made once: `toLocaleString` makes such a thing each time.
const grouped = new Intl.NumberFormat('en');

/** With so many decimals; halves go to the even digit, as in Python. */
function fixed(value: number, digits: number): string {
  const scaled = value * 10 ** digits;
  const below = Math.floor(scaled);
  const half = scaled - below === 0.5 && below % 2 === 0;
  return (half ? below / 10 ** digits : value).toFixed(digits);
}

function figures(value: number): string {
  return fixed(value, value < 9.995 ? 2 : value < 99.95 ? 1 : 0);
}

/** Bytes with a binary unit: `3.10 GiB`, `512 B`, `0`. */
export function size(bytes: number): string {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let unit = 0;
  let value = bytes;
  while (value >= 1000 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  if (unit === 0) {
    return bytes ? `${bytes} B` : '0';
  }
  return `${figures(value)} ${units[unit]}`;
}

/** Bytes to the last one, for the hover. */
export function exact(bytes: number): string {
  return `${grouped.format(bytes)} bytes`;
}

/** The memory of a card, or of several: with two decimals, as torch's out-of-memory message has it. */
export function capacity(bytes: number): string {
  const [unit, scale] = bytes >= 2 ** 30 ? ['GiB', 2 ** 30] : ['MiB', 2 ** 20];
  return `${fixed(bytes / scale, 2)} ${unit}`;
}

/** What is used of a capacity: `3.10 / 158.50 GiB`; in another unit, `23.3 MiB / 158.50 GiB`. */
export function share(used: number, total: number): string {
  const [part, whole] = [size(used), capacity(total)];
  const unit = whole.slice(whole.indexOf(' '));
  return `${part.endsWith(unit) ? part.slice(0, -unit.length) : part} / ${whole}`;
}

/** Simulated time. */
export function duration(ns: number): string {
  const scales: [number, string][] = [
    [1e9, 's'],
    [1e6, 'ms'],
    [1e3, 'µs']
  ];
  for (const [scale, unit] of scales) {
    if (ns >= scale * 0.9995) {
      return `${figures(ns / scale)} ${unit}`;
    }
  }
  return ns ? `${Math.round(ns)} ns` : '0';
}

/** Bytes a second, as NVIDIA counts them: `236 GB/s`, `1.20 MB/s`. */
export function rate(bytesPerSecond: number): string {
  const [scale, unit] = bytesPerSecond < 1e8 ? [1e6, 'MB/s'] : [1e9, 'GB/s'];
  return `${figures(bytesPerSecond / scale)} ${unit}`;
}

/** A count: `1,024`. */
export function count(value: number): string {
  return grouped.format(value);
}

/** A part of a whole: `37%`. */
export function percent(part: number): string {
  return `${Math.round(part * 100)}%`;
}
