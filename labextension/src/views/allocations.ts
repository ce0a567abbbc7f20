import { h, mark, watchWidth } from '../dom';
import type { IAllocations, IBand, IRegion } from '../telemetry/schema';
import { count, duration, size } from '../units';
import { Colours, variable } from './colours';
import { Colour, legible, opaque, parts, Pixels } from './curves';
import { fillKey } from './legend';
import { merged } from './marks';
import { spoken } from './memory';
import { CATEGORIES } from './series';
import { bandAt, extent, IRun, runs, stack, Stack, whole } from './stack';
import { apart } from './ticks';
import type { ITrans } from './trans';
import { Range, zoomedBy } from './view';

const HIGH = 240;
const ROW = 18;
const AXIS = 38;
const SIDE = 74;
const EDGE = 14;

/** Boxes of modules that are narrower, in pixels, are drawn together. */
const THIN = 4;

const FONT = '11px system-ui, sans-serif';

/**
 * The allocations of a window, as PyTorch's memory visualiser draws them: every tensor a band over the sequence of
 * allocations and frees. What is pointed at, or chosen with the arrows, is said below the figure, the user's line first.
 */
export class Allocations {
  constructor(private _trans: ITrans) {
    this._canvas = h('canvas', {
      class: 'fg-Bands',
      tabindex: 0,
      role: 'img',
      onpointermove: event => this._point(event as PointerEvent),
      onpointerleave: () => this._choose(this._kept),
      onpointerdown: event => this._press(event as PointerEvent),
      onpointerup: event => this._drop(event as PointerEvent),
      ondblclick: () => this._zoom(null),
      onkeydown: event => this._key(event as KeyboardEvent)
    });
    const place = h('div', {}, this._canvas);
    this.node = h('div', { class: 'fg-Allocations' }, this._above, place, this._legend, this._said);
    this._observer = watchWidth(place, width => {
      this._width = width;
      this._draw();
    });
  }

  readonly node: HTMLElement;

  /** The picture. */
  get canvas(): HTMLCanvasElement {
    return this._canvas;
  }

  /** The categories that are there, with what each held at the peak, and the phases. */
  get legend(): { colour: string; text: string }[] {
    return [...this._held, ...this._phases];
  }

  private get _phases(): { colour: string; text: string }[] {
    const names = new Set(this._given?.phases.map(([name]) => name));
    return [...names].map(name => ({
      colour: this._colours.of(`--fg-phase-${name}`),
      text: name
    }));
  }

  private get _held(): { colour: string; text: string }[] {
    const given = this._given;
    return CATEGORIES.filter(name => given?.bands.some(band => band.category === name)).map(
      name => ({
        colour: this._colours.of(variable(name)),
        text: `${spoken(name, this._trans)} ${size(this._atPeak(name))}`
      })
    );
  }

  private _fillKey(): void {
    fillKey(this._legend, this._held, this._trans.__('at the peak:'));
    fillKey(this._above, this._phases);
  }

  show(given: IAllocations): void {
    if (given === this._given) {
      return;
    }
    const before = this._given;
    this._given = given;
    this._edges = stack(given);
    if (before?.steps !== given.steps || before.slot !== given.slot) {
      this._range = null; // another sequence: a training's steps have the same one
      this._kept = -1;
    }
    this._kept = Math.min(this._kept, given.bands.length - 1);
    this._fillKey();
    this._choose(this._kept);
    this._draw();
    mark(
      this._canvas,
      'aria-label',
      this._trans.__(
        'Allocations, %1. %2. At the peak: %3. %4',
        given.title,
        given.said,
        this._held.map(({ text }) => text).join(', '),
        this._trans.__(
          'Left and right move from tensor to tensor, plus and minus zoom, 0 shows all.'
        )
      )
    );
  }

  retheme(): void {
    this._colours.forget();
    this._pixels = null;
    this._fillKey();
    this._draw();
  }

  dispose(): void {
    this._observer.disconnect();
  }

  private _atPeak(category: string): number {
    const given = this._given!;
    const column = given.columns.indexOf(given.peakStep);
    return given.bands.reduce(
      (sum, band, place) =>
        sum + (band.category === category ? this._height(place, Math.max(0, column)) : 0),
      0
    );
  }

  private _height(band: number, column: number): number {
    return this._edges[band]![column]! - (this._edges[band - 1]?.[column] ?? 0);
  }

  private get _rows(): IRegion[][] {
    return this._given ? [this._given.phases, this._given.modules].filter(row => row.length) : [];
  }

  private get _top(): number {
    return 6 + ROW * this._rows.length;
  }

  private get _wide(): number {
    return Math.max(1, this._width - SIDE - EDGE);
  }

  private get _most(): number {
    return Math.max(1, (this._given?.peak ?? 0) * 1.12);
  }

  private _across(): Range {
    return this._range ?? (this._given ? whole(this._given) : [0, 1]);
  }

  private _draw(): void {
    const given = this._given;
    const context = this._canvas.getContext('2d');
    if (!given || this._width < SIDE + 40 || !context) {
      return;
    }
    const ratio = window.devicePixelRatio || 1;
    const height = this._top + HIGH + AXIS;
    const [wide, high] = [Math.round(this._width * ratio), Math.round(height * ratio)];
    if (this._canvas.width !== wide || this._canvas.height !== high) {
      this._canvas.width = wide;
      this._canvas.height = high;
      this._canvas.style.height = `${height}px`;
    }
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, wide, high);
    context.putImageData(
      this._painted(ratio).picture,
      Math.round(SIDE * ratio),
      Math.round(this._top * ratio)
    );
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.font = FONT;
    this._drawChosen(context);
    this._drawAxes(context);
    this._rows.forEach((row, place) => this._drawRegions(context, row, place));
    this._drawPeak(context);
    if (this._from !== null && this._to !== null) {
      context.fillStyle = this._colours.of('--fg-accent');
      context.globalAlpha = 0.25;
      const [left, right] = [this._right(this._from), this._right(this._to)];
      context.fillRect(Math.min(left, right), this._top, Math.abs(right - left), HIGH);
      context.globalAlpha = 1;
    }
    // What the pixels mean: for who reads the picture.
    this._canvas.dataset.frame = JSON.stringify({
      left: SIDE,
      top: this._top,
      wide: this._wide,
      high: HIGH,
      across: this._across(),
      most: this._most
    });
  }

  /** The bands as pixels; painted again only where another stretch, size or theme is shown. */
  private _painted(ratio: number): Pixels {
    const given = this._given!;
    const [wide, high] = [Math.round(this._wide * ratio), Math.round(HIGH * ratio)];
    const key = [wide, high, ...this._across()].join(' ');
    if (this._pixels && this._painting === key && this._paintedOf === given) {
      return this._pixels;
    }
    this._painting = key;
    this._paintedOf = given;
    const pixels = (this._pixels = new Pixels(wide, high));
    const colours = given.bands.map(band => this._mixed(variable(band.category), 1));
    const borders = given.bands.map(band => this._mixed(variable(band.category), 0.55));
    const down = (bytes: number): number => Math.round(high * (1 - bytes / this._most));
    this._runs = runs(given.columns, this._edges, this._across(), wide);
    let before: IRun | null = null;
    for (const run of this._runs) {
      for (let place = 0; place < this._edges.length; place++) {
        const held = this._height(place, run.column);
        if (held <= 0) {
          continue;
        }
        const edge = this._edges[place]![run.column]!;
        const top = down(edge);
        const tall = down(edge - held) - top;
        pixels.fill(run.at, top, run.wide, tall, colours[place]!);
        if (tall > 2) {
          pixels.fill(run.at, top, run.wide, 1, borders[place]!);
          if (before && this._height(place, before.column) <= 0) {
            pixels.fill(run.at, top, 1, tall, borders[place]!);
          }
        }
      }
      before = run;
    }
    return pixels;
  }

  /** The band that is said below the figure, set off from the others. */
  private _drawChosen(context: CanvasRenderingContext2D): void {
    if (this._chosen < 0) {
      return;
    }
    const scale = this._wide / Math.max(1, this._pixels!.wide);
    const down = (bytes: number): number => this._top + HIGH * (1 - bytes / this._most);
    const ink = this._colours.of('--fg-ink');
    context.fillStyle = ink;
    for (const { at, wide, column } of this._runs) {
      const held = this._height(this._chosen, column);
      if (held > 0) {
        const edge = this._edges[this._chosen]![column]!;
        const [left, across] = [SIDE + at * scale, wide * scale];
        const [top, bottom] = [down(edge), down(edge - held)];
        context.globalAlpha = 0.4;
        context.fillRect(left, top, across, bottom - top);
        context.globalAlpha = 1;
        context.fillRect(left, top - 1, across, 1.5);
        context.fillRect(left, bottom - 0.5, across, 1.5);
      }
    }
  }

  private _drawAxes(context: CanvasRenderingContext2D): void {
    const bottom = this._top + HIGH;
    const between = 2 ** Math.ceil(Math.log2(this._most / 6));
    context.textBaseline = 'middle';
    context.textAlign = 'right';
    for (let bytes = 0; bytes <= this._most; bytes += between) {
      const down = Math.round(bottom - (HIGH * bytes) / this._most);
      context.fillStyle = this._colours.of('--fg-grid');
      context.fillRect(SIDE - 4, down, 4, 1);
      context.fillStyle = this._colours.of('--fg-soft');
      context.fillText(size(bytes), SIDE - 7, down);
    }
    const [low, high] = this._across();
    const raw = Math.max(1, (high - low) / Math.max(2, Math.floor(this._wide / 90)));
    const step = apart(raw);
    context.textBaseline = 'top';
    context.textAlign = 'center';
    for (let at = Math.max(0, Math.ceil(low / step) * step); at <= high; at += step) {
      const right = this._right(at);
      context.fillStyle = this._colours.of('--fg-grid');
      context.fillRect(Math.round(right), bottom, 1, 4);
      context.fillStyle = this._colours.of('--fg-soft');
      context.fillText(count(at), right, bottom + 6);
    }
    context.fillStyle = this._colours.of('--fg-grid');
    context.fillRect(SIDE - 1, this._top, 1, HIGH + 1);
    context.fillRect(SIDE - 1, bottom, this._wide, 1);
    context.fillStyle = this._colours.of('--fg-soft');
    context.fillText(
      this._trans.__('allocations and frees, in order'),
      SIDE + this._wide / 2,
      bottom + 22
    );
  }

  /** Phases or modules above the bands; those that have room for their name show it. */
  private _drawRegions(context: CanvasRenderingContext2D, row: IRegion[], place: number): void {
    const top = 2 + place * ROW;
    const phases = row === this._given!.phases;
    context.textBaseline = 'middle';
    context.textAlign = 'right';
    context.fillStyle = this._colours.of('--fg-soft');
    context.fillText(
      phases ? this._trans.__('phase') : this._trans.__('module'),
      SIDE - 7,
      top + ROW / 2 - 1
    );
    context.textAlign = 'center';
    const boxes = row
      .map(([name, first, last]) => ({
        name,
        left: Math.max(SIDE, this._right(first - 0.5)),
        right: Math.min(SIDE + this._wide, this._right(last - 0.5))
      }))
      .filter(({ left, right }) => right > left);
    for (const { name, left, right } of phases ? boxes : merged(boxes, THIN)) {
      const colour = this._colours.of(phases ? `--fg-phase-${name}` : '--fg-sunken');
      context.fillStyle = colour;
      context.fillRect(left, top, Math.max(1, right - left - 1), ROW - 3);
      const said = namings(name).find(one => context.measureText(one).width < right - left - 6);
      if (said) {
        context.fillStyle = legible(parts(colour));
        context.fillText(said, (left + right) / 2, top + ROW / 2 - 1);
      }
    }
  }

  private _drawPeak(context: CanvasRenderingContext2D): void {
    const { peak, peakStep } = this._given!;
    const at = Math.round(this._right(peakStep));
    if (at < SIDE || at > SIDE + this._wide) {
      return;
    }
    const top = this._top + HIGH * (1 - peak / this._most);
    context.fillStyle = this._colours.of('--fg-ink');
    for (let down = top; down < this._top + HIGH; down += 6) {
      context.fillRect(at, down, 1.5, 3);
    }
    context.textBaseline = 'bottom';
    context.font = `600 ${FONT}`;
    const text = this._trans.__('peak %1', size(peak));
    const late = at + context.measureText(text).width > this._width;
    context.textAlign = late ? 'right' : 'left';
    context.fillText(text, late ? Math.min(at + 2, this._width) : at, top - 3);
    context.font = FONT;
  }

  /** Where a step is, px. */
  private _right(step: number): number {
    const [low, high] = this._across();
    return SIDE + ((step - low) / (high - low)) * this._wide;
  }

  /** The step under the pointer. */
  private _at(event: PointerEvent): number {
    const box = this._canvas.getBoundingClientRect();
    const [low, high] = this._across();
    const part = (event.clientX - box.left - SIDE) / this._wide;
    return low + Math.min(1, Math.max(0, part)) * (high - low);
  }

  private _point(event: PointerEvent): void {
    const given = this._given;
    if (!given) {
      return;
    }
    if (this._from !== null) {
      this._to = this._at(event);
      this._draw();
      return;
    }
    const box = this._canvas.getBoundingClientRect();
    const part = (event.clientX - box.left - SIDE) / this._wide;
    const bytes = (1 - (event.clientY - box.top - this._top) / HIGH) * this._most;
    const at = Math.floor(part * (this._pixels?.wide ?? 0));
    const run = this._runs.find(one => at >= one.at && at < one.at + one.wide);
    const found = run && bytes >= 0 ? bandAt(this._edges, run.column, bytes) : -1;
    const row = this._rows[Math.floor((event.clientY - box.top - 2) / ROW)];
    const step = this._at(event);
    const region = row?.find(([, first, last]) => first - 0.5 <= step && step < last - 0.5);
    this._choose(found >= 0 ? found : this._kept);
    mark(this._canvas, 'title', region ? region[0] : '');
  }

  private _press(event: PointerEvent): void {
    this._kept = this._chosen; // a click keeps what it is on
    this._from = this._at(event);
    this._canvas.setPointerCapture(event.pointerId);
  }

  private _drop(event: PointerEvent): void {
    const from = this._from;
    const to = this._at(event);
    this._from = this._to = null;
    const [low, high] = this._across();
    if (from !== null && Math.abs(to - from) > (high - low) / 100) {
      this._zoom(from < to ? [from, to] : [to, from]);
    } else {
      this._draw();
    }
  }

  private _zoom(range: Range | null): void {
    const wide = range && range[1] - range[0] < 4 ? ([range[0], range[0] + 4] as const) : range;
    this._range = wide;
    this._draw();
  }

  private _key(event: KeyboardEvent): void {
    const given = this._given;
    if (!given) {
      return;
    }
    const [low, high] = this._across();
    const middle = this._chosen < 0 ? (low + high) / 2 : this._middle(this._chosen);
    const last = given.bands.length - 1;
    const own = given.bands.findIndex(band => band.stack.length > 0);
    if (event.key === 'ArrowRight') {
      this._keep(this._kept < 0 ? Math.max(0, own) : Math.min(last, this._kept + 1));
    } else if (event.key === 'ArrowLeft') {
      this._keep(this._kept < 0 ? last : Math.max(0, this._kept - 1));
    } else {
      const range = zoomedBy(event.key, [low, high], middle, whole(given));
      if (range === undefined) {
        return;
      }
      this._zoom(range);
    }
    event.preventDefault();
    event.stopPropagation();
  }

  private _middle(band: number): number {
    const { columns, steps } = this._given!;
    const [first, last] = extent(this._edges, band);
    return ((columns[first] ?? 0) + (columns[last] ?? steps)) / 2;
  }

  private _keep(band: number): void {
    this._kept = band;
    const [low, high] = this._across();
    const middle = this._middle(band);
    if (this._range && (middle < low || middle > high)) {
      const by = middle - (low + high) / 2;
      this._range = [low + by, high + by];
    }
    this._choose(band);
  }

  private _choose(band: number): void {
    if (band === this._chosen && this._saidOf === this._given) {
      return;
    }
    this._chosen = band;
    this._saidOf = this._given;
    const given = this._given?.bands[band];
    const [first, ...others] = given
      ? this._words(given)
      : [
          this._trans.__(
            'Each band is a tensor. Point at one, or use the arrow keys, to see what it is.'
          )
        ];
    this._said.replaceChildren(
      h(given ? 'strong' : 'span', {}, first!),
      ...(given ? others : [this._trans.__('Drag to zoom; double-click to show everything.')]).map(
        line => h('span', {}, line)
      )
    );
    this._draw();
  }

  /** What is known of a band: its size and shape, then the user's line, what called it, and what it is for. */
  private _words(band: IBand): string[] {
    const trans = this._trans;
    const category = spoken(band.category, trans);
    if (band.tensors > 1 || band.stack.length === 0) {
      const many = trans._n('%1 tensor', '%1 tensors', band.tensors);
      const old = band.changes[0]?.[0] === 0;
      return [
        `${category}: ${many}`,
        old
          ? trans.__('Allocated before the recording began.')
          : trans.__('Each is too small for its own band.'),
        trans.__('The largest is %1.', size(band.nbytes))
      ];
    }
    const [own, ...callers] = band.stack;
    const part = (100 * band.nbytes) / Math.max(1, this._given!.peak);
    const share = part < 0.05 ? '' : trans.__('%1 of the peak', `${part.toFixed(1)}%`);
    const made = band.phase ? trans.__('%1, made in %2', category, band.phase) : category;
    const where = band.module ? trans.__('%1 in %2', band.op, band.module) : band.op;
    return [
      [size(band.nbytes), band.shape, share].filter(Boolean).join(' · '),
      own!,
      ...callers.map(line => trans.__('called from %1', line)),
      `${made} ${trans.__('by %1', where)}; ${
        band.heldNs < 0
          ? trans.__('still held at the end')
          : trans.__('held for %1', duration(band.heldNs))
      }`
    ];
  }

  /** A colour of CSS, in this part over the paper. */
  private _mixed(name: string, part: number): Colour {
    const [mine, paper] = [parts(this._colours.of(name)), parts(this._colours.of('--fg-paper'))];
    const [red, green, blue] = mine.map((one, at) => one * part + paper[at]! * (1 - part));
    return opaque(red!, green!, blue!);
  }

  private _canvas: HTMLCanvasElement;
  private _above = h('ul', { class: 'fg-Legend' });
  private _legend = h('ul', { class: 'fg-Legend' });
  private _said = h('div', { class: 'fg-Allocations-said', role: 'status' });
  private _given: IAllocations | null = null;
  private _edges: Stack = [];
  private _runs: IRun[] = [];
  private _pixels: Pixels | null = null;
  private _painting = '';
  private _paintedOf: IAllocations | null = null;
  private _saidOf: IAllocations | null = null;
  private _range: Range | null = null;
  /** The band that is said, and the one that is said when none is pointed at; -1: none. */
  private _chosen = -1;
  private _kept = -1;
  private _from: number | null = null;
  private _to: number | null = null;
  private _colours = new Colours(() => this.node);
  private _width = 0;
  private _observer: ResizeObserver;
}

/** A module's path, then shorter ways to say it: `Net.blocks.0.mlp`, `blocks.0.mlp`, `0.mlp`, `mlp`. */
function namings(path: string): string[] {
  const names = path.split('.');
  return names.map((_, place) => names.slice(place).join('.'));
}
