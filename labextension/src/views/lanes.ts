import { h, mark, say, watchWidth } from '../dom';
import type { IBar, ITimeline } from '../telemetry/schema';
import { duration, percent } from '../units';
import { Colours } from './colours';
import { legible, parts } from './curves';
import { fillKey, IEntry } from './legend';
import { labels, Step } from './marks';
import { apart, ticks } from './ticks';
import type { ITrans } from './trans';
import { Range, View, zoomedBy } from './view';

const LANE = 20;
const BAR = 14;
const AXIS = 22;

/** The row with the numbers of the steps that end in it. */
const STEPS = 16;
const SIDE = 118;

/** The same where the figure is narrow. */
const NARROW = 92;

/** The kinds of bars in which something waits: striped, as in the figure of a recording. */
const HATCHED = ['host waits', 'waits for ranks'];

function hatch(context: CanvasRenderingContext2D, left: number, top: number, wide: number): void {
  context.save();
  context.beginPath();
  context.rect(left, top, wide, BAR);
  context.clip();
  context.beginPath();
  for (let at = left - BAR; at < left + wide; at += 6) {
    context.moveTo(at, top + BAR);
    context.lineTo(at + BAR, top);
  }
  context.strokeStyle = '#555555';
  context.stroke();
  context.restore();
}

/** The last stretch that was recorded: a lane for each stream, copy engine and host thread, a bar for each kernel. */
export class Lanes {
  constructor(
    private _view: View,
    private _trans: ITrans
  ) {
    this._canvas = h('canvas', {
      class: 'fg-Lanes',
      tabindex: 0,
      role: 'img',
      onpointermove: event => this._point(event as PointerEvent),
      onpointerleave: () => this._leave(),
      onpointerdown: event => {
        this._from = this._at(event as PointerEvent);
        this._canvas.setPointerCapture((event as PointerEvent).pointerId);
      },
      onpointerup: event => this._drop(event as PointerEvent),
      ondblclick: () => this._zoom(null),
      onkeydown: event => this._key(event as KeyboardEvent)
    });
    const scroll = h('div', { class: 'fg-Lanes-scroll' }, this._canvas);
    this.node = h('div', { class: 'fg-Lanes-frame' }, scroll, this._tip, this._legend);
    this._observer = watchWidth(scroll, width => {
      this._width = width;
      this._draw();
    });
    _view.moved.connect(this._draw, this);
  }

  readonly node: HTMLElement;

  /** The picture. */
  get canvas(): HTMLCanvasElement {
    return this._canvas;
  }

  /** The kinds of bars there are, with their colours. */
  get legend(): IEntry[] {
    return this._kinds.map(kind => ({
      colour: this._colour(kind),
      text: this._name(kind),
      hatched: HATCHED.includes(kind)
    }));
  }

  show(timeline: ITimeline, steps: Step[] = []): void {
    const ended = steps.filter(([ns]) => ns > timeline.began && ns <= timeline.ended);
    if (timeline === this._timeline && ended.length === this._steps.length) {
      return;
    }
    this._range = timeline === this._timeline ? this._range : null;
    this._timeline = timeline;
    this._steps = ended;
    this._kinds = [...new Set(timeline.lanes.flatMap(lane => lane.bars.map(bar => bar.kind)))];
    mark(
      this._canvas,
      'aria-label',
      this._trans.__(
        '%1: %2 lanes over %3. %4 Arrows move, plus and minus zoom, 0 shows all.',
        timeline.title,
        timeline.lanes.length,
        duration(timeline.ended - timeline.began),
        this._most(timeline)
      )
    );
    fillKey(this._legend, this.legend);
    this._draw();
  }

  /** What took most, in words. */
  private _most({ top, free, ended }: ITimeline): string {
    const shares = top
      .slice(0, 3)
      .map(({ kernel, ns }) => `${kernel} ${percent(ns / Math.max(1, ended - free))}`);
    return shares.length > 0 ? this._trans.__('Most time went to %1.', shares.join(', ')) : '';
  }

  retheme(): void {
    this._colours.forget();
    fillKey(this._legend, this.legend);
    this._draw();
  }

  dispose(): void {
    this._observer.disconnect();
    this._view.moved.disconnect(this._draw, this);
  }

  private _draw(): void {
    const timeline = this._timeline;
    const width = this._width;
    const context = this._canvas.getContext('2d');
    if (!timeline || width < NARROW + 20 || !context) {
      return;
    }
    const head = this._head;
    const height = timeline.lanes.length * LANE + head;
    const ratio = window.devicePixelRatio || 1;
    if (
      this._canvas.width !== Math.round(width * ratio) ||
      this._canvas.height !== Math.round(height * ratio)
    ) {
      this._canvas.width = Math.round(width * ratio);
      this._canvas.height = Math.round(height * ratio);
      this._canvas.style.height = `${height}px`;
    }
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    context.font = '11px system-ui, sans-serif';
    context.textBaseline = 'middle';
    const [low, high] = this._across();
    const scale = (width - this._side) / (high - low);
    const text = this._colours.of('--fg-ink');
    this._grid(context, width, height);
    timeline.lanes.forEach((lane, place) => {
      const top = head + place * LANE + (LANE - BAR) / 2;
      context.fillStyle = text;
      context.textAlign = 'left';
      context.fillText(lane.label, 4, head + place * LANE + LANE / 2, this._side - 8);
      for (const bar of lane.bars) {
        if (bar.end < low || bar.start > high) {
          continue;
        }
        const left = this._side + Math.max(0, (bar.start - low) * scale);
        const right = this._side + Math.min(width - this._side, (bar.end - low) * scale);
        const colour = this._colour(bar.kind);
        const wide = Math.max(1, right - left - (right - left > 3 ? 0.5 : 0));
        context.fillStyle = colour;
        context.fillRect(left, top, wide, BAR);
        if (HATCHED.includes(bar.kind)) {
          hatch(context, left, top, wide);
        } else if (bar.label && context.measureText(bar.label).width < wide - 6) {
          context.fillStyle = this._ink(colour);
          context.textAlign = 'center';
          context.fillText(bar.label, left + wide / 2, top + BAR / 2 + 0.5);
        }
      }
    });
    this._drawSteps(context, width, height);
    const { cursor } = this._view;
    if (cursor !== null && cursor >= low && cursor <= high) {
      context.fillStyle = text;
      context.fillRect(this._side + (cursor - low) * scale, head, 1, height - head);
    }
    if (this._from !== null && this._to !== null) {
      context.fillStyle = this._colours.of('--fg-accent');
      context.globalAlpha = 0.25;
      const [from, to] = [this._from, this._to].sort((one, other) => one - other) as [
        number,
        number
      ];
      context.fillRect(this._side + (from - low) * scale, head, (to - from) * scale, height - head);
      context.globalAlpha = 1;
    }
  }

  /** Where the GPUs came to the ends of steps: as in the figure of memory, a line each, and the step's number. */
  private _drawSteps(context: CanvasRenderingContext2D, width: number, height: number): void {
    const [low, high] = this._across();
    const wide = width - this._side;
    const place = (ns: number): number => ((ns - low) / (high - low)) * wide;
    const steps = this._steps.filter(([ns]) => ns >= low && ns <= high);
    context.fillStyle = this._colours.of('--fg-ink');
    for (const [ns] of steps) {
      const at = Math.min(width - 1, this._side + place(ns));
      for (let down = AXIS + STEPS - 4; down < height; down += 6) {
        context.fillRect(at, down, 1, 3);
      }
    }
    if (steps.length === 0) {
      return;
    }
    context.textAlign = 'left';
    const shown = labels(steps, place, wide, text => context.measureText(text).width);
    for (const { left, text } of shown) {
      context.fillText(text, this._side + left, AXIS + STEPS / 2 - 4);
    }
    const what = this._trans.__('end of step');
    context.fillText(what, 4, AXIS + STEPS / 2 - 4, this._side - 8);
    this._canvas.dataset.steps = [what, ...shown.map(label => label.text)].join(' ');
  }

  private _grid(context: CanvasRenderingContext2D, width: number, height: number): void {
    const [low, high] = this._across();
    const many = Math.max(2, Math.floor((width - this._side) / 110));
    const raw = (high - low) / many;
    const between = apart(raw);
    const moments: number[] = [];
    for (let at = Math.ceil(low / between) * between; at <= high; at += between) {
      moments.push(at);
    }
    const words = ticks(moments);
    context.textAlign = 'center';
    moments.forEach((at, place) => {
      const x = this._side + ((at - low) / (high - low)) * (width - this._side);
      context.fillStyle = this._colours.of('--fg-grid');
      context.fillRect(x, AXIS - 4, 1, height - AXIS + 4);
      if (x + context.measureText(words[place]!).width / 2 < width) {
        context.fillStyle = this._colours.of('--fg-soft');
        context.fillText(words[place]!, x, AXIS / 2 - 2);
      }
    });
  }

  private _across(): Range {
    const timeline = this._timeline;
    return (
      this._range ??
      (timeline ? [timeline.began, Math.max(timeline.ended, timeline.began + 1)] : [0, 1])
    );
  }

  /** The moment under the pointer. */
  private _at(event: PointerEvent): number {
    const box = this._canvas.getBoundingClientRect();
    const [low, high] = this._across();
    const part = (event.clientX - box.left - this._side) / Math.max(1, box.width - this._side);
    return low + Math.min(1, Math.max(0, part)) * (high - low);
  }

  private _point(event: PointerEvent): void {
    const at = this._at(event);
    this._to = this._from === null ? null : at;
    this._view.cursor = Math.round(at);
    const box = this._canvas.getBoundingClientRect();
    const lane = this._timeline?.lanes[Math.floor((event.clientY - box.top - this._head) / LANE)];
    const [low, high] = this._across();
    const near = ((high - low) / Math.max(1, box.width - this._side)) * 2;
    const bar = lane && under(lane.bars, at, near);
    this._tip.hidden = !bar || this._from !== null;
    if (bar && lane) {
      const named =
        bar.label && bar.label !== bar.kind
          ? `${bar.label} (${this._name(bar.kind)})`
          : this._name(bar.kind);
      say(this._tip, `${lane.label}: ${named}, ${duration(bar.end - bar.start)}`);
      const frame = this.node.getBoundingClientRect();
      const left = Math.min(
        event.clientX - frame.left + 12,
        frame.width - this._tip.offsetWidth - 4
      );
      this._tip.style.left = `${Math.max(0, left)}px`;
      this._tip.style.top = `${event.clientY - frame.top + 14}px`;
    }
    this._draw();
  }

  private _leave(): void {
    this._tip.hidden = true;
    this._view.cursor = null;
  }

  private _drop(event: PointerEvent): void {
    const from = this._from;
    const to = this._at(event);
    this._from = this._to = null;
    if (from !== null) {
      const [low, high] = this._across();
      const range: Range = from < to ? [from, to] : [to, from];
      if (range[1] - range[0] > (high - low) / 200) {
        this._zoom(range);
      }
    }
    this._draw();
  }

  private _zoom(range: Range | null): void {
    this._range = range;
    this._draw();
  }

  private _key(event: KeyboardEvent): void {
    const timeline = this._timeline;
    if (!timeline) {
      return;
    }
    const [low, high] = this._across();
    const whole: Range = [timeline.began, timeline.ended];
    const aside = (high - low) / 8;
    if (event.key === 'ArrowLeft' || event.key === 'ArrowRight') {
      const by =
        event.key === 'ArrowLeft'
          ? -Math.min(aside, low - whole[0])
          : Math.min(aside, whole[1] - high);
      this._zoom(this._range ? [low + by, high + by] : null);
    } else {
      const range = zoomedBy(event.key, [low, high], (low + high) / 2, whole);
      if (range === undefined) {
        return;
      }
      this._zoom(range);
    }
    event.preventDefault();
    event.stopPropagation();
  }

  private _name(kind: string): string {
    return (
      {
        python: this._trans.__('host: Python'),
        dispatch: this._trans.__("host: PyTorch's C++"),
        launch: this._trans.__('host launches'),
        forward: this._trans.__('module, forward'),
        backward: this._trans.__('module, backward'),
        'waits for ranks': this._trans.__('waits for the slowest rank'),
        'earlier work': this._trans.__('earlier work, not recorded')
      }[kind] ?? kind
    );
  }

  /** The colour of a name on a bar. */
  private _ink(colour: string): string {
    const known = this._inks.get(colour) ?? legible(parts(colour));
    this._inks.set(colour, known);
    return known;
  }

  private _colour(kind: string): string {
    return this._colours.of(`--fg-kind-${kind.replace(/\W+/g, '-')}`, '--fg-kind-other');
  }

  private _canvas: HTMLCanvasElement;
  private _tip = h('div', { class: 'fg-Tip', hidden: true });
  private _legend = h('ul', { class: 'fg-Legend' });
  private _timeline: ITimeline | null = null;
  private _steps: Step[] = [];
  private _range: Range | null = null;
  private _kinds: string[] = [];
  private _inks = new Map<string, string>();
  private _from: number | null = null;
  private _to: number | null = null;
  private _colours = new Colours(() => this.node);
  private _width = 0;

  /** Pixels above the lanes. */
  private get _head(): number {
    return AXIS + (this._steps.length > 0 ? STEPS : 0);
  }

  /** Pixels for the names of the lanes. */
  private get _side(): number {
    return this._width < 460 ? NARROW : SIDE;
  }

  private _observer: ResizeObserver;
}

/** The bar at a moment, or the nearest to it within `near`. */
export function under(bars: IBar[], at: number, near: number): IBar | undefined {
  const inside = bars.filter(bar => bar.start <= at && at <= bar.end);
  return inside.length > 0
    ? inside.reduce((best, bar) => (bar.end - bar.start < best.end - best.start ? bar : best))
    : bars.find(bar => bar.start - near <= at && at <= bar.end + near);
}
