import { h, mark, say, watchWidth } from '../dom';
import { columns } from './columns';

/** What a sparkline shows, from `begin` to `end`: a filled curve from 0 to `top`, and a line of parts of 1. */
export interface ICurves {
  begin: number;
  end: number;
  x: number[];
  y: number[];
  top: number;
  /** The moments of `parts`, each of which holds until the next. */
  at: number[];
  parts: number[];
  /** What stands at the ends of its axes. */
  words: { top: string; begin: string; end: string };
}

/** What it is drawn with. */
export interface IColours {
  memory: string;
  utilisation: string;
}

const HEIGHT = 36;

/** A small picture of memory (filled) and utilisation (line), on a canvas, with the ends of its axes in words. */
export class Sparkline {
  readonly canvas = h('canvas', { class: 'fg-Sparkline', role: 'img' });

  readonly node = h(
    'div',
    { class: 'fg-Spark' },
    this.canvas,
    h('div', { class: 'fg-Spark-scale', 'aria-hidden': 'true' }),
    h('div', { class: 'fg-Spark-time', 'aria-hidden': 'true' }, h('span'), h('span'))
  );

  constructor() {
    watchWidth(this.canvas, width => {
      this._width = width;
      this._again();
    });
  }

  /** Whether it is in view. */
  set seen(seen: boolean) {
    this._seen = seen;
    if (seen) {
      this._again();
    }
  }

  /** Draw what is asked for, when it comes into view at the latest; `label` is what a screen reader says. */
  draw(asked: () => ICurves, colours: IColours, label: string): void {
    this._again = () => this.draw(asked, colours, label);
    mark(this.canvas, 'aria-label', label);
    const width = this._width;
    const context = this.canvas.getContext('2d');
    if (width === 0 || !this._seen || !context) {
      return;
    }
    const ratio = window.devicePixelRatio || 1;
    if (this.canvas.width !== Math.round(width * ratio)) {
      this.canvas.width = Math.round(width * ratio);
      this.canvas.height = Math.round(HEIGHT * ratio);
    }
    const curves = asked();
    context.clearRect(0, 0, this.canvas.width, this.canvas.height);
    this._area(context, curves, colours.memory, ratio);
    this._line(context, curves, colours.utilisation, ratio);
    const [, scale, time] = this.node.children;
    say(scale!, curves.words.top);
    say(time!.children[0]!, curves.words.begin);
    say(time!.children[1]!, curves.words.end);
  }

  private _area(
    context: CanvasRenderingContext2D,
    { begin, end, x, y, top }: ICurves,
    colour: string,
    ratio: number
  ): void {
    if (x.length === 0 || top <= 0) {
      return;
    }
    context.fillStyle = colour;
    context.globalAlpha = 0.35;
    // What is held now goes on to the end of the picture.
    columns([...x, end], [...y, null], begin, end, this.canvas.width, (at, wide, _, high) => {
      const upper = ratio * (HEIGHT - 1 - (high / top) * (HEIGHT - 2));
      context.fillRect(at, upper, wide, this.canvas.height - upper);
    });
    context.globalAlpha = 1;
  }

  private _line(
    context: CanvasRenderingContext2D,
    { begin, end, at: moments, parts }: ICurves,
    colour: string,
    ratio: number
  ): void {
    const down = (part: number): number => ratio * (HEIGHT - 1.5 - part * (HEIGHT - 2));
    context.fillStyle = colour;
    columns(moments, parts, begin, end, this.canvas.width, (at, wide, low, high) =>
      context.fillRect(at, down(high), wide, down(low) - down(high) + 1.25 * ratio)
    );
  }

  private _again: () => void = () => undefined;
  private _width = 0;
  private _seen = false;
}
