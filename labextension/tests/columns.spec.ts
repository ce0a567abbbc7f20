import * as src from '../src/views/columns';

interface IRun {
  at: number;
  wide: number;
  low: number;
  high: number;
}

function columns(
  x: number[],
  y: (number | null)[],
  from: number,
  to: number,
  many: number
): IRun[] {
  const found: IRun[] = [];
  src.columns(x, y, from, to, many, (at, wide, low, high) => found.push({ at, wide, low, high }));
  return found;
}

/** Numbers that look random and are the same each time. */
function numbers(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state * 48271) % 2147483647;
    return state / 2147483647;
  };
}

/** What each column holds, found the slow way: all values whose stretch touches it, and the one before a rise. */
function slow(
  x: number[],
  y: (number | null)[],
  from: number,
  to: number,
  wide: number
): ([number, number] | null)[] {
  const columnOf = (moment: number): number =>
    moment === to ? wide - 1 : Math.floor(((moment - from) / (to - from)) * wide);
  return Array.from({ length: wide }, (_, column) => {
    const held = y.flatMap((value, place) => {
      const first = columnOf(x[place]!);
      const last = columnOf(x[place + 1] ?? x[place]!);
      if (value === null || first > column || last < column) {
        return [];
      }
      const before = first === column ? (y[place - 1] ?? value) : value;
      return [value, before];
    });
    return held.length > 0 ? [Math.min(...held), Math.max(...held)] : null;
  });
}

describe('columns', () => {
  test('a value is held until the next moment, and a rise is within one column', () => {
    expect(columns([0, 50, 100], [1, 3, 2], 0, 100, 10)).toEqual([
      { at: 0, wide: 1, low: 1, high: 1 },
      { at: 1, wide: 4, low: 1, high: 1 },
      { at: 5, wide: 1, low: 1, high: 3 },
      { at: 6, wide: 3, low: 3, high: 3 },
      { at: 9, wide: 1, low: 2, high: 3 }
    ]);
  });

  test('null is a gap', () => {
    expect(columns([0, 2, 6], [5, null, 5], 0, 10, 10)).toEqual([
      { at: 0, wide: 1, low: 5, high: 5 },
      { at: 1, wide: 1, low: 5, high: 5 },
      { at: 2, wide: 1, low: 5, high: 5 },
      { at: 6, wide: 1, low: 5, high: 5 }
    ]);
  });

  test('what was before the picture is held into it, and what comes after is left out', () => {
    expect(columns([-50, 200], [4, 9], 0, 100, 10)).toEqual([{ at: 0, wide: 10, low: 4, high: 4 }]);
    expect(columns([], [], 0, 100, 10)).toEqual([]);
  });

  test('no peak is lost, no column is twice, whatever the curve', () => {
    for (let seed = 1; seed <= 300; seed++) {
      const next = numbers(seed);
      const many = Math.floor(next() * 40);
      const wide = 1 + Math.floor(next() * 30);
      const x = Array.from({ length: many }, () => Math.floor(next() * 60) - 10);
      x.sort((one, other) => one - other);
      const y = x.map(() => (next() < 0.1 ? null : Math.floor(next() * 9)));
      const expected = slow(x, y, 0, 40, wide);
      const found: ([number, number] | null)[] = expected.map(() => null);
      let end = 0;
      for (const run of columns(x, y, 0, 40, wide)) {
        expect(run.at).toBeGreaterThanOrEqual(end);
        end = run.at + run.wide;
        expect(end).toBeLessThanOrEqual(wide);
        found.fill([run.low, run.high], run.at, end);
      }
      expect(found).toEqual(expected);
    }
  });
});
