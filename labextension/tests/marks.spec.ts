import { IBox, labels, merged, roomAbove, Step } from '../src/views/marks';

const wide = (text: string): number => 6 * text.length;

function shown(many: number, width: number): ReturnType<typeof labels> {
  const steps: Step[] = Array.from({ length: many }, (_, place) => [(place + 1) * 10, place + 1]);
  return labels(steps, ns => (ns / (many * 10)) * width, width, wide);
}

test('every step has its number where there is room', () => {
  expect(shown(12, 600).map(label => label.text)).toEqual(
    Array.from({ length: 12 }, (_, place) => String(place + 1))
  );
});

test('of a run of 14 steps a figure as narrow as a sidebar still numbers several', () => {
  expect(shown(14, 110).map(label => label.text)).toEqual(['1', '5', '10']);
});

test.each([2, 12, 40, 400])('names of %i steps never lie on each other', many => {
  for (const width of [80, 240, 600, 1400]) {
    const found = shown(many, width);
    expect(found.length).toBeGreaterThan(0);
    found.forEach(({ left, text }, place) => {
      expect(left).toBeGreaterThanOrEqual(0);
      expect(left + wide(text)).toBeLessThanOrEqual(width + 1e-6);
      const next = found[place + 1];
      if (next) {
        expect(next.left).toBeGreaterThanOrEqual(left + wide(text) + 8);
      }
    });
  }
});

test('the numbers that are left read like a scale', () => {
  expect(shown(100, 300).map(label => label.text)).toEqual(['1', '20', '40', '60', '80', '100']);
});

test('thin boxes beside each other are drawn as one, and wide ones keep their names', () => {
  const box = (name: string, left: number, right: number): IBox => ({ name, left, right });
  const given = [box('a', 0, 1), box('b', 1, 2.5), box('c', 3, 20), box('d', 20, 21)];
  expect(merged([...given, box('e', 30, 31)], 4)).toEqual([
    box('', 0, 2.5),
    box('c', 3, 20),
    box('', 20, 21),
    box('', 30, 31)
  ]);
});

test('a name stands above its line where no other line, and no end of the figure, is close', () => {
  expect(roomAbove(100, [10, 100, 80, 130], 14)).toBe(true);
  expect(roomAbove(100, [10, 100, 90], 14)).toBe(false); // it would paint over the line at 90
  expect(roomAbove(100, [92, 100], 14)).toBe(false);
});
