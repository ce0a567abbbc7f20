/**
 * Curves of steps as pixels. A canvas takes them in far faster than thousands of rectangles, and taking them in where
 * they belong leaves no garbage: a picture of them, drawn from another canvas, is a copy that is thrown away.
 *
 * Of each column of pixels the lowest and the highest value are kept, so no peak is lost, however long the run.
 */

import type { ILine } from './chart';
import { columns } from './columns';
import type { Range } from './view';

/** The length of a dash, px; half of it is the gap after it. */
const DASH = 6;

/** Pixels between two strips, in the page's. */
const GAP = 4;

/** Rows of pixels: from `top`, so many. */
export interface IStrip {
  top: number;
  tall: number;
}

/** Where curves are drawn to, and what their axes show. */
export interface IFrame {
  /** From the canvas's own corner, in its pixels. */
  left: number;
  top: number;
  wide: number;
  high: number;
  /** Pixels of the canvas in one of the page. */
  ratio: number;
  /** The moments at the left and right border. */
  across: Range;
  /** The value at the upper border; 0 is the lower one. */
  most: number;
  /** Whether each curve has a strip of its own, one below the other. */
  strips: boolean;
  /** A stretch of moments that is marked, if any. */
  marked: Range | null;
  /** The moments and the values that have a line of the scale. */
  lines: { moments: number[]; values: number[] };
}

type Frame = Pick<IFrame, 'across' | 'most'> & { strip?: IStrip };

/** Opaque colours, as a picture keeps them. */
export type Colour = number;

/** Pixels, row by row from the upper left corner. What is not drawn is transparent. */
export class Pixels {
  constructor(
    readonly wide: number,
    readonly high: number
  ) {
    this.bytes = new Uint8ClampedArray(4 * wide * high);
    this._words = new Uint32Array(this.bytes.buffer);
  }

  /** Red, green, blue and opacity of each pixel. */
  readonly bytes: Uint8ClampedArray<ArrayBuffer>;

  /** The same pixels as a canvas takes them. */
  get picture(): ImageData {
    return (this._picture ??= new ImageData(this.bytes, this.wide, this.high));
  }

  clear(): void {
    this._words.fill(0);
  }

  /** Draw a rectangle; what lies outside is left out. */
  fill(left: number, top: number, wide: number, high: number, colour: Colour): void {
    const right = Math.min(this.wide, left + wide);
    const bottom = Math.min(this.high, top + high);
    const first = Math.max(0, left);
    for (let row = Math.max(0, top); row < bottom; row++) {
      const start = row * this.wide;
      for (let at = start + first; at < start + right; at++) {
        this._words[at] = colour;
      }
    }
  }

  private _words: Uint32Array;
  private _picture: ImageData | null = null;
}

/** A colour of red, green and blue from 0 to 255. */
export function opaque(red: number, green: number, blue: number): Colour {
  const word = new Uint32Array(1);
  new Uint8Array(word.buffer).set([red, green, blue, 255]);
  return word[0]!;
}

/** Draw what is below the curves: a stretch that is marked, and the lines of the scale. */
export function drawGround(
  pixels: Pixels,
  { across, most, marked, lines, ratio }: Omit<IFrame, 'left' | 'top' | 'wide' | 'high' | 'strips'>,
  shade: Colour,
  ink: Colour
): void {
  const { wide, high } = pixels;
  const thin = Math.max(1, Math.round(ratio));
  const right = (moment: number): number =>
    Math.round(((moment - across[0]) / (across[1] - across[0])) * (wide - thin));
  if (marked) {
    const from = right(marked[0]);
    pixels.fill(from, 0, Math.max(2 * thin, right(marked[1]) - from), high, shade);
  }
  lines.moments.forEach(moment => pixels.fill(right(moment), 0, thin, high, ink));
  const down = downOf(pixels, { most }, thin);
  lines.values.forEach(value => pixels.fill(0, down(value), wide, thin, ink));
}

/** Draw a curve as a line. */
export function drawLine(
  pixels: Pixels,
  moments: number[],
  line: Pick<ILine, 'drawn' | 'dashed'>,
  frame: Frame & Pick<IFrame, 'ratio'>,
  colour: Colour
): void {
  const thick = Math.max(1, Math.round(1.5 * frame.ratio));
  const dash = Math.max(2, Math.round(DASH * frame.ratio));
  const period = Math.round(1.5 * dash);
  const down = downOf(pixels, frame, thick);
  const wide = Math.max(1, Math.floor(pixels.wide / thick));
  columns(moments, line.drawn, ...frame.across, wide, (first, many, low, high) => {
    const top = down(high);
    const tall = down(low) - top + thick;
    const end = (first + many) * thick;
    if (tall > thick || !line.dashed) {
      pixels.fill(first * thick, top, many * thick, tall, colour);
      return;
    }
    // All dashed lines have their gaps at the same places; a rise has none.
    for (let at = first * thick; at < end; at += period - (at % period)) {
      const left = dash - (at % period);
      if (left > 0) {
        pixels.fill(at, top, Math.min(left, end - at), tall, colour);
      }
    }
  });
}

/**
 * Draw a curve as an area, from the highest value of each column down to 0; `edge` is the colour of its upper border,
 * `swing` of what lies between the highest and the lowest value of a column.
 */
export function drawArea(
  pixels: Pixels,
  moments: number[],
  drawn: ILine['drawn'],
  frame: Frame,
  colour: Colour,
  edge: Colour,
  swing = colour
): void {
  const down = downOf(pixels, frame, 0);
  const bottom = (frame.strip?.top ?? 0) + (frame.strip?.tall ?? pixels.high);
  columns(moments, drawn, ...frame.across, pixels.wide, (at, wide, low, high) => {
    const top = down(high);
    pixels.fill(at, top, wide, bottom - top, colour);
    if (swing !== colour) {
      pixels.fill(at, top, wide, down(low) - top, swing);
    }
    pixels.fill(at, top, wide, Math.min(1, bottom - top), edge);
  });
}

/** Draw the outline of areas: their highest value, and where a column falls far below that, the lowest one, too. */
export function drawOutline(
  pixels: Pixels,
  moments: number[],
  drawn: ILine['drawn'],
  frame: Frame & Pick<IFrame, 'ratio'>,
  above: Colour,
  below: Colour
): void {
  const thin = Math.max(1, Math.round(frame.ratio));
  const down = downOf(pixels, frame, thin);
  columns(moments, drawn, ...frame.across, pixels.wide, (at, wide, low, high) => {
    const top = down(high);
    if (down(low) - top > 3 * thin) {
      pixels.fill(at, down(low), wide, thin, below);
    }
    pixels.fill(at, top, wide, thin, above);
  });
}

/** The row of a value: so that a line of this thickness is whole at 0 and at the most. */
function downOf(
  pixels: Pixels,
  { most, strip }: Pick<Frame, 'most' | 'strip'>,
  thick: number
): (value: number) => number {
  const { top, tall } = strip ?? { top: 0, tall: pixels.high };
  return value => top + Math.round((tall - thick) * (1 - value / most));
}

/** The rows of the strip at a place, of so many. */
export function stripOf(place: number, many: number, high: number, ratio: number): IStrip {
  const gap = Math.round(GAP * ratio);
  const top = Math.round((place * high) / many) + gap;
  return { top, tall: Math.max(1, Math.round(((place + 1) * high) / many) - top) };
}

/** The curves of a chart, on its canvas. */
export class Curves {
  /** Put curves where nothing was drawn yet; `colourOf` knows the colours of CSS variables. */
  draw(
    context: CanvasRenderingContext2D,
    moments: number[],
    lines: ILine[],
    frame: IFrame,
    colourOf: (name: string) => string
  ): void {
    const [wide, high] = [Math.round(frame.wide), Math.round(frame.high)];
    if (wide < 1 || high < 1) {
      return;
    }
    if (this._pixels?.wide !== wide || this._pixels.high !== high) {
      this._pixels = new Pixels(wide, high);
    }
    const pixels = this._pixels;
    pixels.clear();
    const paper = colourOf('--fg-paper');
    const shade = this._colour(colourOf('--fg-raised'));
    drawGround(pixels, frame, shade, this._colour(colourOf('--fg-grid')));
    lines.forEach((line, place) => {
      const name = colourOf(line.colour);
      const colour = this._colour(name);
      if (frame.strips) {
        const strip = stripOf(place, lines.length, high, frame.ratio);
        const swing = this._colour(name, paper);
        drawArea(pixels, moments, line.drawn, { ...frame, strip }, colour, colour, swing);
      } else if (line.outline) {
        drawOutline(pixels, moments, line.drawn, frame, colour, this._colour(paper));
      } else if (line.filled) {
        // Layers of like colours are told apart by the line between them.
        drawArea(pixels, moments, line.drawn, frame, colour, this._colour(paper, name));
      } else {
        drawLine(pixels, moments, line, frame, colour);
      }
    });
    context.putImageData(pixels.picture, Math.round(frame.left), Math.round(frame.top));
  }

  /** A colour of CSS, or the middle of two. */
  private _colour(one: string, other = one): Colour {
    const key = `${one} ${other}`;
    let found = this._colours.get(key);
    if (found === undefined) {
      const [mine, its] = [parts(one), parts(other)];
      const [red, green, blue] = mine.map((part, place) => (part + its[place]!) / 2);
      found = opaque(red!, green!, blue!);
      this._colours.set(key, found);
    }
    return found;
  }

  private _pixels: Pixels | null = null;
  private _colours = new Map<string, Colour>();
}

/** Red, green and blue of a colour of CSS: the browser knows best how to read it. */
export function parts(colour: string): [number, number, number] {
  const canvas = document.createElement('canvas');
  canvas.width = canvas.height = 1;
  const context = canvas.getContext('2d')!;
  context.fillStyle = colour;
  context.fillRect(0, 0, 1, 1);
  const [red, green, blue] = context.getImageData(0, 0, 1, 1).data;
  return [red!, green!, blue!];
}

/** Black or white, whichever can be read on a colour (WCAG's relative luminance). */
export function legible(colour: [number, number, number]): string {
  const [red, green, blue] = colour.map(part => {
    const value = part / 255;
    return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red! + 0.7152 * green! + 0.0722 * blue! > 0.179 ? '#000' : '#fff';
}
