import { h, mark } from '../dom';

/** What a sparkline shows: a filled curve over x, from 0 to `top`, and a line of equally spaced parts of 1. */
export interface ICurves {
  x: number[];
  y: number[];
  top: number;
  parts: number[];
}

const HEIGHT = 36;

/** A small picture of memory (filled) and utilisation (line), on a canvas. */
export class Sparkline {
  readonly node = h('canvas', { class: 'fg-Sparkline', role: 'img' });

  /** Draw; `label` is what a screen reader says. */
  draw(curves: ICurves, label: string): void {
    mark(this.node, 'aria-label', label);
    const width = this.node.clientWidth;
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
    const style = getComputedStyle(this.node);
    this._area(context, curves, width, style.getPropertyValue('--fg-memory'));
    this._line(context, curves.parts, width, style.getPropertyValue('--fg-utilisation'));
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
    let before = down(y[0] ?? 0);
    x.forEach((value, place) => {
      // Memory stays as it is until it changes: steps, not slopes.
      context.lineTo(across(value), before);
      before = down(y[place] ?? 0);
      context.lineTo(across(value), before);
    });
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
}
