import { Ring } from '../src/telemetry/ring';

test('the oldest rows go, in order', () => {
  const ring = new Ring(3, 2);
  for (let row = 0; row < 5; row++) {
    ring.push([row, 10 * row]);
  }
  expect(ring.length).toBe(3);
  expect(ring.column(0)).toEqual([2, 3, 4]);
  expect(ring.column(1, 1)).toEqual([30, 40]);
  expect(ring.at(-1, 1)).toBe(40);
});

test('there is nothing outside', () => {
  const ring = new Ring(2, 1);
  expect(ring.at(0, 0)).toBeNaN();
  ring.push([]);
  expect(ring.at(0, 0)).toBe(0);
  expect(ring.at(0, 1)).toBeNaN();
  expect(ring.at(-2, 0)).toBeNaN();
  ring.clear();
  expect(ring.column(0)).toEqual([]);
});

test('a ring of nothing is refused', () => {
  expect(() => new Ring(0, 1)).toThrow(RangeError);
});
