import uPlot from 'uplot';

import { h, mark, say, watchSight, watchWidth } from '../dom';
import { duration } from '../units';
import { Colours } from './colours';
import { Curves } from './curves';
import { Legend } from './legend';
import { labels, roomAbove, Step } from './marks';
import { before } from './series';
import { ticks } from './ticks';
import type { ITrans } from './trans';
import { Range, View, zoomedBy } from './view';

/** A curve of a chart. */
export interface ILine {
  name: string;
  /** The CSS variable that has its colour. */
  colour: string;
  /** What is drawn, for each moment. */
  drawn: (number | null)[];
  /** What is said, where that is another figure than the one drawn: of a stack, the layer's own. */
  said?: (number | null)[];
  filled?: boolean;
  dashed?: boolean;
  /** The upper border of the areas below it. */
  outline?: boolean;
}

/** A value that is named at the end of its line. */
export interface ILevel {
  value: number;
  text: string;
  colour: string;
}

/** What a chart shows. */
export interface IChartData {
  ns: number[];
  lines: ILine[];
  /** The whole run. */
  whole: Range;
  /** The upper end of the scale. */
  top: number;
  /** What the figure shows, with its numbers, for who cannot see it. */
  said: string;
  /** Whether each curve has a strip of its own, with its name: so none lies on another. */
  strips?: boolean;
  /** Optimizer steps: when each ended, and which it was. */
  steps?: Step[];
  levels?: ILevel[];
  /** A stretch that is shown elsewhere in full. */
  window?: Range | null;
}

/** How a chart is drawn and what it says. */
export interface IChartOptions {
  height: number;
  /** What a screen reader says of the figure and its keys. */
  label: string;
  /** A figure in words, for the scale and the legend. */
  words: (value: number) => string;
  /** The same to the last digit, for the hover. */
  exact?: (value: number) => string;
  /** Whether a figure is about the stretch from its moment to the next one, and not about the moment. */
  stretches?: boolean;
  /** Distances between two lines of the scale that read well. */
  increments: number[];
}

const TIMES = [1, 2, 5].flatMap(digit =>
  Array.from({ length: 14 }, (_, power) => digit * 10 ** power)
);
TIMES.sort((one, other) => one - other);

/** All multiples of a figure from `low` to `high`. */
function multiples(of: number, low: number, high: number): number[] {
  const first = Math.ceil(low / of);
  const many = Math.max(0, Math.floor(high / of) - first + 1);
  return Array.from({ length: many }, (_, place) => (first + place) * of);
}

/** Curves of steps over simulated time, with a legend that says their figures at the cursor, else the last ones. */
export class Chart {
  constructor(
    private _view: View,
    private _options: IChartOptions,
    private _trans: ITrans
  ) {
    this._shaded = h(
      'span',
      { class: 'fg-Legend-shaded', hidden: true },
      h('span', { class: 'fg-Swatch' }),
      _trans.__('the part shown in Timeline')
    );
    this._legend = new Legend(_options.words, name => this._colours.of(name), _options.exact);
    this._host = h('div', {
      class: 'fg-Chart-host',
      tabindex: 0,
      role: 'img',
      'aria-label': _options.label,
      onkeydown: event => this._key(event as KeyboardEvent),
      onblur: () => {
        this._view.cursor = null;
      }
    });
    this.node = h(
      'div',
      { class: 'fg-Chart' },
      this._host,
      h('div', { class: 'fg-Legend-line' }, this._legend.when, this._legend.node, this._shaded)
    );
    this._observer = watchWidth(this._host, width => this._resize(width));
    this._sight = watchSight(this._host, seen => {
      this._seen = seen;
      this._catchUp(seen);
    });
    _view.moved.connect(this._moved, this);
    _view.zoomed.connect(this._zoomed, this);
  }

  readonly node: HTMLElement;

  /** The picture as it is; null before the first drawing. */
  get canvas(): HTMLCanvasElement | null {
    this._catchUp(true);
    return this._plot?.ctx.canvas ?? null;
  }

  /** The legend, in words. */
  get legend(): { colour: string; text: string }[] {
    return this._legend.shown;
  }

  /** Draw, when it comes into view at the latest; the legend says it at once. */
  draw(data: IChartData): void {
    this._data = data;
    this._late = true;
    this._catchUp(this._seen || !this._plot);
    this._tell();
  }

  /** Draw what was not drawn yet, if it is to be. */
  private _catchUp(now: boolean): void {
    const data = this._data;
    if (data) {
      mark(this._host, 'aria-label', `${this._options.label} ${data.said}`);
    }
    const width = this._width;
    if (!now || !this._late || !data || width === 0) {
      return;
    }
    this._late = false;
    const names = [
      data.strips,
      ...data.lines.map(line => `${line.name} ${line.colour} ${line.dashed}`)
    ].join('\n');
    const drawn: uPlot.AlignedData = [data.ns, ...data.lines.map(line => line.drawn)];
    if (!this._plot || names !== this._names) {
      this._plot?.destroy();
      this._names = names;
      this._plot = new uPlot(this._described(data, width), drawn, this._host);
      this._legend.fill(data.lines);
      this._tell();
    } else {
      this._plot.setData(drawn, true);
    }
  }

  /** The colours may be others now. */
  retheme(): void {
    this._colours.forget();
    this._plot?.redraw(false);
    if (this._data) {
      this._legend.fill(this._data.lines);
      this._tell();
    }
  }

  dispose(): void {
    this._observer.disconnect();
    this._sight.disconnect();
    this._view.moved.disconnect(this._moved, this);
    this._view.zoomed.disconnect(this._zoomed, this);
    this._plot?.destroy();
    this._plot = null;
  }

  private _described(data: IChartData, width: number): uPlot.Options {
    const axis = {
      stroke: () => this._colours.of('--fg-soft'),
      grid: { show: false }, // `_under` draws it, below the curves
      ticks: { show: false },
      font: '11px system-ui, sans-serif'
    };
    return {
      width,
      height: this._height,
      legend: { show: false },
      padding: [data.steps ? 20 : 8, 26, 0, 0], // the last moment's words are centred at the border
      cursor: {
        y: false,
        points: { show: false },
        drag: { x: true, y: false, setScale: false },
        bind: {
          dblclick: () => () => {
            this._view.range = null;
            return null;
          }
        }
      },
      scales: {
        x: { time: false, range: () => this._across() },
        y: { range: () => [0, this._data?.strips ? this._data.lines.length : this._most] }
      },
      axes: [
        {
          ...axis,
          size: 28,
          space: (_, __, ___, ____, wide) => Math.min(80, wide / 3), // at least two moments
          incrs: TIMES,
          splits: (_, __, low, high, apart) => (this._lines.moments = multiples(apart, low, high)),
          values: (_, splits) => ticks(splits)
        },
        {
          ...axis,
          size: 74,
          ...(data.strips ? this._named() : this._scaled())
        }
      ],
      series: [
        {},
        // Drawn by `_under`: as strokes of paths, curves of many moments hold up the page.
        ...data.lines.map((): uPlot.Series => ({ paths: () => null, points: { show: false } }))
      ],
      hooks: {
        drawClear: [plot => this._under(plot)],
        setCursor: [
          plot => {
            const { left } = plot.cursor;
            this._view.cursor =
              left === undefined || left < 0 ? null : Math.round(plot.posToVal(left, 'x'));
          }
        ],
        setSelect: [
          plot => {
            const { left, width: wide } = plot.select;
            if (wide > 3) {
              this._view.range = [plot.posToVal(left, 'x'), plot.posToVal(left + wide, 'x')];
              plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
            }
          }
        ]
      }
    };
  }

  /** The scale of the values. */
  private _scaled(): Partial<uPlot.Axis> {
    return {
      incrs: this._options.increments,
      splits: (_, __, low, high, apart) => (this._lines.values = multiples(apart, low, high)),
      values: (_, splits) => splits.map(value => this._options.words(value))
    };
  }

  /** The strips by name; the first is the upper one. */
  private _named(): Partial<uPlot.Axis> {
    this._lines.values = [];
    const names = (): string[] => (this._data?.lines ?? []).map(line => line.name);
    return {
      splits: () => names().map((_, place) => place + 0.5),
      values: () => names().reverse()
    };
  }

  /** The figure's height: as many strips as there are, all to be seen. */
  private get _height(): number {
    const { strips, lines } = this._data ?? {};
    return strips && lines
      ? 48 + lines.length * Math.max(22, Math.min(90, (this._options.height - 48) / lines.length))
      : this._options.height;
  }

  /** The curves and what is below them, and the steps at the bottom. */
  private _under(plot: uPlot): void {
    const { ctx, bbox } = plot;
    const [low, high] = this._across();
    const ratio = window.devicePixelRatio || 1;
    this._curves.draw(
      ctx,
      this._data?.ns ?? [],
      this._data?.lines ?? [],
      {
        left: bbox.left,
        top: bbox.top,
        wide: bbox.width,
        high: bbox.height,
        ratio,
        across: [low, high],
        most: this._most,
        strips: this._data?.strips ?? false,
        marked: this._marked,
        lines: this._lines
      },
      name => this._colours.of(name)
    );
    // What the pixels mean: for who reads the picture.
    this._host.dataset.frame = JSON.stringify({
      left: Math.round(bbox.left),
      top: Math.round(bbox.top),
      wide: Math.round(bbox.width),
      high: Math.round(bbox.height),
      across: [low, high],
      most: this._most
    });
    ctx.save();
    ctx.font = `${Math.round(11 * ratio)}px system-ui, sans-serif`;
    this._drawSteps(plot, low, high, ratio);
    this._drawLevels(plot, ratio);
    ctx.restore();
  }

  /** The ends of steps: a tick at the bottom, and above the figure the numbers of as many as have room. */
  private _drawSteps(plot: uPlot, low: number, high: number, ratio: number): void {
    const { ctx, bbox } = plot;
    const steps = (this._data?.steps ?? []).filter(([ns]) => ns >= low && ns <= high);
    if (steps.length === 0 || steps.length * 4 * ratio > bbox.width) {
      return;
    }
    const thin = Math.max(1, Math.round(ratio));
    ctx.fillStyle = this._colours.of('--fg-soft');
    for (const [ns] of steps) {
      const at = Math.round(plot.valToPos(ns, 'x', true));
      ctx.fillRect(at, bbox.top + bbox.height - 6 * ratio, thin, 6 * ratio);
    }
    ctx.textAlign = 'left';
    ctx.textBaseline = 'bottom';
    const shown = labels(
      steps,
      ns => plot.valToPos(ns, 'x', true) - bbox.left,
      bbox.width,
      text => ctx.measureText(text).width,
      8 * ratio
    );
    for (const { at, left, text } of shown) {
      ctx.fillRect(Math.round(bbox.left + at), bbox.top - 4 * ratio, thin, 4 * ratio);
      ctx.fillText(text, bbox.left + left, bbox.top - 5 * ratio);
    }
    const what = this._trans.__('end of step');
    ctx.textAlign = 'right';
    ctx.fillText(what, bbox.left - 7 * ratio, bbox.top - 5 * ratio);
    this._host.dataset.steps = [what, ...shown.map(label => label.text)].join(' ');
  }

  /**
   * Lines at a value, each with its name at an end, on a ground of its own: one at the right, the next one at the left.
   * A name stands above its line, or below it if another line, or the figure's end, is too close above.
   */
  private _drawLevels(plot: uPlot, ratio: number): void {
    const { ctx, bbox } = plot;
    ctx.textBaseline = 'bottom';
    const room = 14 * ratio;
    const levels = (this._data?.levels ?? []).filter(level => level.value <= this._most);
    const downs = levels.map(({ value }) => Math.round(plot.valToPos(value, 'y', true)));
    levels.forEach(({ text, colour }, place) => {
      const down = downs[place]!;
      ctx.fillStyle = this._colours.of(colour);
      ctx.fillRect(bbox.left, down, bbox.width, Math.max(1, Math.round(ratio)));
      const right = place % 2 === 0;
      ctx.textAlign = right ? 'right' : 'left';
      const at = right ? bbox.left + bbox.width - 4 * ratio : bbox.left + 4 * ratio;
      const line = roomAbove(down, [bbox.top, ...downs], room) ? down - 1 : down + room;
      const wide = ctx.measureText(text).width + 6 * ratio;
      const left = right ? at - wide + 3 * ratio : at - 3 * ratio;
      ctx.fillStyle = this._colours.of('--fg-paper'); // else a curve behind it would strike it through
      ctx.fillRect(left, line - 12 * ratio, wide, 12 * ratio);
      ctx.fillStyle = this._colours.of(colour);
      ctx.fillText(text, at, line);
    });
  }

  /** The stretch that the timeline shows: not when that is nearly all there is. */
  private get _marked(): Range | null {
    const [from, to] = this._data?.window ?? [0, 0];
    const [low, high] = this._across();
    return to <= low || from >= high || to - from >= 0.9 * (high - low)
      ? null
      : [Math.max(low, from), Math.min(high, to)];
  }

  private get _most(): number {
    return Math.max(1e-9, this._data?.top ?? 1);
  }

  private _across(): [number, number] {
    const [low, high] = this._view.range ?? this._data?.whole ?? [0, 1];
    return [low, Math.max(high, low + 1)];
  }

  private _moved(): void {
    const plot = this._plot;
    if (!plot) {
      return;
    }
    const { cursor } = this._view;
    const [low, high] = this._across();
    const left =
      cursor === null || cursor < low || cursor > high ? -10 : plot.valToPos(cursor, 'x');
    if (Math.abs((plot.cursor.left ?? -10) - left) > 0.5) {
      plot.setCursor({ left, top: left < 0 ? -10 : 1 }, false);
    }
    this._tell();
  }

  private _zoomed(): void {
    const [min, max] = this._across();
    this._plot?.setScale('x', { min, max });
    this._tell();
  }

  private _resize(width: number): void {
    this._width = width;
    if (!this._plot) {
      this._catchUp(true);
      this._tell();
    } else if (width > 0) {
      this._plot.setSize({ width, height: this._height });
    }
  }

  /** Arrows move the cursor, plus and minus zoom, 0 shows all. */
  private _key(event: KeyboardEvent): void {
    const [low, high] = this._across();
    const at = this._view.cursor ?? high;
    const whole = this._data?.whole ?? [0, 1];
    const step = (high - low) / (event.shiftKey ? 10 : 100);
    if (event.key === 'ArrowLeft' || event.key === 'ArrowRight') {
      const to = at + (event.key === 'ArrowLeft' ? -step : step);
      this._view.cursor = Math.min(high, Math.max(low, to));
    } else {
      const range = zoomedBy(event.key, [low, high], at, whole);
      if (range === undefined) {
        return;
      }
      this._view.range = range;
    }
    event.preventDefault();
    event.stopPropagation();
  }

  private _tell(): void {
    if (this._data) {
      const { cursor } = this._view;
      this._legend.tell(this._data, cursor);
      say(this._legend.when, this._when(this._data.ns, cursor));
      this._shaded.hidden = this._marked === null;
    }
  }

  /** Of which time the figures in the legend are. */
  private _when(ns: number[], cursor: number | null): string {
    if (this._options.stretches && ns.length > 1) {
      const place = cursor === null ? ns.length - 2 : Math.min(ns.length - 2, before(ns, cursor));
      if (place >= 0) {
        const [from, to] = [ns[place]!, ns[place + 1]!];
        return cursor === null
          ? this._trans.__('in the last %1:', duration(to - from))
          : this._trans.__('from %1 to %2:', duration(from), duration(to));
      }
    }
    return cursor === null ? this._trans.__('now:') : this._trans.__('at %1:', duration(cursor));
  }

  private _legend: Legend;
  /** Says what the marked stretch is. */
  private _shaded: HTMLElement;
  private _host: HTMLElement;
  private _plot: uPlot | null = null;
  private _curves = new Curves();
  private _lines: { moments: number[]; values: number[] } = { moments: [], values: [] };
  private _names = '';
  private _data: IChartData | null = null;
  private _colours = new Colours(() => this.node);
  private _observer: ResizeObserver;
  private _sight: IntersectionObserver;
  private _seen = false;
  private _width = 0;
  private _late = false;
}
