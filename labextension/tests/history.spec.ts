import { History } from '../src/telemetry/history';

const TEETH = 20;
const LONG = 1000;

/** Steps that climb and fall, each to a height of its own. */
function teeth(): History {
  const history = new History(900, 2, 0, 1);
  for (let step = 0; step < TEETH; step++) {
    for (let event = 0; event < LONG; event++) {
      const climbed = LONG / 2 - Math.abs(event - LONG / 2);
      history.push([step * LONG + event, climbed * (1 + (step % 3))]);
    }
  }
  return history;
}

test('rows are thinned without losing an extreme of any step', () => {
  const history = teeth();
  expect(history.length).toBeLessThanOrEqual(900);
  const [ns, bytes] = [history.column(0), history.column(1)];
  expect(ns).toEqual([...ns].sort((one, other) => one - other));
  for (let step = 0; step < TEETH; step++) {
    const inside = bytes.filter((_, row) => Math.floor(ns[row]! / LONG) === step);
    expect(Math.max(...inside)).toBe((LONG / 2) * (1 + (step % 3)));
    expect(Math.min(...inside)).toBe(0);
  }
  expect(history.at(-1, 0)).toBe(TEETH * LONG - 1);
});

test('a copy stays as it is', () => {
  const history = new History(4, 2, 0, 1);
  history.push([1, 5]);
  const copy = history.copy();
  history.push([2, 6]);
  expect(copy.column(1)).toEqual([5]);
  expect(history.column(1)).toEqual([5, 6]);
  expect(copy.at(3, 0)).toBeNaN();
});
