import { drawArea, drawGround, drawLine, opaque, Pixels } from '../src/views/curves';

const RED = opaque(255, 0, 0);
const BLUE = opaque(0, 0, 255);

/** The pixels as letters, row by row. */
function seen(pixels: Pixels): string[] {
  return Array.from({ length: pixels.high }, (_, row) =>
    Array.from({ length: pixels.wide }, (__, column) => {
      const [red, , blue, opacity] = pixels.bytes.subarray(4 * (row * pixels.wide + column));
      return opacity === 0 ? '.' : red ? 'r' : blue ? 'b' : '?';
    }).join('')
  );
}

describe('curves', () => {
  test('a line has its value at the right height, and rises within one column', () => {
    const pixels = new Pixels(6, 5);
    const frame = { across: [0, 6] as [number, number], most: 4, ratio: 0.5 };
    drawLine(pixels, [0, 3, 6], { drawn: [0, 4, 2] }, frame, RED);
    expect(seen(pixels)).toEqual(['...rrr', '...r.r', '...r.r', '...r..', 'rrrr..']);
  });

  test('the lines of the scale lie below the curves, and above a stretch that is marked', () => {
    const pixels = new Pixels(7, 5);
    const ground = {
      across: [0, 6] as const,
      most: 4,
      ratio: 1,
      marked: [2, 4] as const,
      lines: { moments: [0, 6], values: [0, 4] }
    };
    drawGround(pixels, ground, BLUE, RED);
    expect(seen(pixels)).toEqual(['rrrrrrr', 'r.bb..r', 'r.bb..r', 'r.bb..r', 'rrrrrrr']);
    drawArea(pixels, [0, 6], [4, 4], ground, BLUE, BLUE);
    expect(seen(pixels)).toEqual(Array<string>(5).fill('bbbbbbb'));
  });

  test('nothing is drawn outside, and clear leaves nothing', () => {
    const pixels = new Pixels(4, 2);
    pixels.fill(-3, -3, 4, 4, RED);
    pixels.fill(3, 1, 100, 100, BLUE);
    expect(seen(pixels)).toEqual(['r...', '...b']);
    pixels.clear();
    expect(seen(pixels)).toEqual(['....', '....']);
  });

  test('an area goes down to 0, with its edge above', () => {
    const pixels = new Pixels(4, 4);
    const frame = { across: [0, 4] as [number, number], most: 4 };
    drawArea(pixels, [0, 2, 4], [2, null, null], frame, RED, BLUE);
    drawArea(pixels, [0, 2, 4], [null, 3, 3], frame, BLUE, RED);
    expect(seen(pixels)).toEqual(['....', '..rr', 'bbbb', 'rrbb']);
  });

  test('dashes have gaps, at the same places whatever the curve', () => {
    const frame = { across: [0, 36] as [number, number], most: 1, ratio: 0.5 };
    const whole = new Pixels(36, 1);
    drawLine(whole, [0, 36], { drawn: [0, 0], dashed: true }, frame, RED);
    const parted = new Pixels(36, 1);
    drawLine(parted, [0, 7, 20, 36], { drawn: [0, 0, 0, 0], dashed: true }, frame, RED);
    expect(seen(whole)).toEqual(['rrr..rrr..rrr..rrr..rrr..rrr..rrr..r']);
    expect(seen(parted)).toEqual(seen(whole));
  });
});
