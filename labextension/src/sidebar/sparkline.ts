import { h, mark } from '../dom';

/** What a sparkline shows: a filled curve over x, from 0 to `top`, and a line of equally spaced parts of 1. */
export interface ICurves {
  x: number[];
  y: number[];
  top: number;
  parts: number[];
}

/** What it is drawn with. */
export interface IColours {
  memory: string;
  utilisation: string;
}

const HEIGHT = 36;

/** A small picture of memory (filled) and utilisation (line), on a canvas. */
export class Sparkline {
  readonly node = h('canvas', { class: 'fg-Sparkline', role: 'img' });

  constructor() {
    // Asked for its width, the page would lay itself out anew for each of many cards.
    this._observer = new ResizeObserver(entries => {
      const width = Math.round(entries[entries.length - 1]!.contentRect.width);
      if (width !== this._width) {
        this._width = width;
        this._again();
      }
    });
    this._observer.observe(this.node);
  }

  /** Draw; `label` is what a screen reader says. */
  draw(curves: ICurves, colours: IColours, label: string): void {
    this._again = () => this.draw(curves, colours, label);
    mark(this.node, 'aria-label', label);
    const width = this._width;
    const context = this.node.getContext('2d');
    if (width === 0 || !context) {
      return;
    }
    const ratio = window.devicePixelRatio || 1;
    if (this.node.width !== Math.round(width * ratio)) {
      this.node.width = Math.round(width * ratio);
      this.node.height = Math.round(HEIGHT * ratio);
    }
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, HEIGHT);
    this._area(context, curves, width, colours.memory);
    this._line(context, curves.parts, width, colours.utilisation);
  }

  private _area(
    context: CanvasRenderingContext2D,
    { x, y, top }: ICurves,
    width: number,
    colour: string
  ): void {
    const first = x[0];
    const last = x[x.length - 1];
    if (first === undefined || last === undefined || top <= 0) {
      return;
    }
    const across = (value: number): number =>
      last > first ? ((value - first) / (last - first)) * width : 0;
    const down = (value: number): number => HEIGHT - 1 - (value / top) * (HEIGHT - 2);
    context.beginPath();
    context.moveTo(0, HEIGHT);
    // Memory stays as it is until it changes: steps, not slopes. Of all within a pixel, the most is seen.
    let before = down(y[0] ?? 0);
    let pixel = 0;
    let peak = before;
    x.forEach((value, place) => {
      const at = Math.floor(across(value));
      if (at > pixel) {
        context.lineTo(pixel, peak);
        context.lineTo(pixel + 1, peak);
        context.lineTo(pixel + 1, before);
        context.lineTo(at, before);
        pixel = at;
        peak = before;
      }
      before = down(y[place] ?? 0);
      peak = Math.min(peak, before);
    });
    context.lineTo(pixel, peak);
    context.lineTo(width, before);
    context.lineTo(width, HEIGHT);
    context.closePath();
    context.fillStyle = colour;
    context.globalAlpha = 0.35;
    context.fill();
    context.globalAlpha = 1;
  }

  private _line(
    context: CanvasRenderingContext2D,
    parts: number[],
    width: number,
    colour: string
  ): void {
    if (parts.length < 2) {
      return;
    }
    context.beginPath();
    parts.forEach((part, place) => {
      context.lineTo((place / (parts.length - 1)) * width, HEIGHT - 1 - part * (HEIGHT - 2));
    });
    context.strokeStyle = colour;
    context.lineWidth = 1.25;
    context.stroke();
  }

  private _again: () => void = () => undefined;
  private _width = 0;
  private _observer: ResizeObserver;
}
