import { labels, Step } from '../src/views/marks';

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
