import uPlot from 'uplot';

import { h, watchSight, watchWidth } from '../dom';
import { Curves } from './curves';
import { Legend } from './legend';
import { ticks } from './ticks';
import { Range, scaled, View } from './view';

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
}

/** What a chart shows. */
export interface IChartData {
  ns: number[];
  lines: ILine[];
  /** The whole run. */
  whole: Range;
  /** The upper end of the scale. */
  top: number;
  /** Marks of optimizer steps, ns. */
  steps?: number[];
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
    private _options: IChartOptions
  ) {
    this._legend = new Legend(_options.words, name => this._colour(name));
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
    this.node = h('div', { class: 'fg-Chart' }, this._host, this._legend.node);
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
    const width = this._width;
    if (!now || !this._late || !data || width === 0) {
      return;
    }
    this._late = false;
    const names = data.lines.map(line => `${line.name} ${line.colour}`).join('\n');
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
    this._colours.clear();
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
      stroke: () => this._colour('--jp-ui-font-color2'),
      grid: { show: false }, // `_under` draws it, below the curves
      ticks: { show: false },
      font: '11px system-ui, sans-serif'
    };
    return {
      width,
      height: this._options.height,
      legend: { show: false },
      padding: [8, 12, 0, 0],
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
        y: { range: () => [0, this._most] }
      },
      axes: [
        {
          ...axis,
          size: 28,
          space: 80,
          incrs: TIMES,
          splits: (_, __, low, high, apart) => (this._lines.moments = multiples(apart, low, high)),
          values: (_, splits) => ticks(splits)
        },
        {
          ...axis,
          size: 74,
          incrs: this._options.increments,
          splits: (_, __, low, high, apart) => (this._lines.values = multiples(apart, low, high)),
          values: (_, splits) => splits.map(value => this._options.words(value))
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

  /** The curves and what is below them, and the steps at the bottom. */
  private _under(plot: uPlot): void {
    const { ctx, bbox } = plot;
    const [low, high] = this._across();
    this._curves.draw(
      ctx,
      this._data?.ns ?? [],
      this._data?.lines ?? [],
      {
        left: bbox.left,
        top: bbox.top,
        wide: bbox.width,
        high: bbox.height,
        ratio: window.devicePixelRatio || 1,
        across: [low, high],
        most: this._most,
        marked: this._marked,
        lines: this._lines
      },
      name => this._colour(name)
    );
    const steps = (this._data?.steps ?? []).filter(ns => ns >= low && ns <= high);
    if (steps.length <= 80) {
      ctx.fillStyle = this._colour('--jp-ui-font-color2');
      for (const ns of steps) {
        ctx.fillRect(plot.valToPos(ns, 'x', true), bbox.top + bbox.height - 6, 1, 6);
      }
    }
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
  }

  private _resize(width: number): void {
    this._width = width;
    if (!this._plot) {
      this._catchUp(true);
      this._tell();
    } else if (width > 0) {
      this._plot.setSize({ width, height: this._options.height });
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
    } else if (event.key === '+' || event.key === '=') {
      this._view.range = scaled([low, high], at, 0.5, whole);
    } else if (event.key === '-') {
      this._view.range = scaled([low, high], at, 2, whole);
    } else if (event.key === '0' || event.key === 'Escape') {
      this._view.range = null;
    } else {
      return;
    }
    event.preventDefault();
    event.stopPropagation();
  }

  private _tell(): void {
    if (this._data) {
      this._legend.tell(this._data, this._view.cursor);
    }
  }

  private _colour(name: string): string {
    let found = this._colours.get(name);
    if (found === undefined) {
      found = getComputedStyle(this.node).getPropertyValue(name).trim() || '#888';
      this._colours.set(name, found);
    }
    return found;
  }

  private _legend: Legend;
  private _host: HTMLElement;
  private _plot: uPlot | null = null;
  private _curves = new Curves();
  private _lines: { moments: number[]; values: number[] } = { moments: [], values: [] };
  private _names = '';
  private _data: IChartData | null = null;
  private _colours = new Map<string, string>();
  private _observer: ResizeObserver;
  private _sight: IntersectionObserver;
  private _seen = false;
  private _width = 0;
  private _late = false;
}
