import { h } from '../dom';
import { deviceName, Model, shortName } from '../telemetry/model';
import type { IDevice } from '../telemetry/schema';
import { duration, exact, percent, share, size } from '../units';
import { Allocations } from './allocations';
import { Chart } from './chart';
import { Lanes } from './lanes';
import { byCategory, byDevice, lineColour } from './memory';
import type { IPart } from './picture';
import { PartId, Section } from './section';
import { Advice } from './advice';
import * as series from './series';
import { collectiveRows, copyRows, matrixRows, peakRows, rankRows, Table, topRows } from './tables';
import type { ITrans } from './trans';
import type { Range, View } from './view';

/** Which parts there are. */
export interface IFiguresOptions {
  transfers: boolean;
  collectives: boolean;
  timeline: boolean;
}

type Draw = (model: Model, device: IDevice | undefined, options: IFiguresOptions) => void;

/** How long a table stays as it is, ms: figures that change more often cannot be read. */
const READING = 400;

const BINARY = Array.from({ length: 46 }, (_, power) => 2 ** power);

/** What is shown of a model: parts, each with its figures or why there are none. Dashboard and panel show the same. */
export class Figures {
  constructor(
    view: View,
    private _trans: ITrans,
    saveCsv: (part: PartId) => void
  ) {
    const trans = _trans;
    const keys = trans.__('Arrows move the cursor, plus and minus zoom, 0 shows the whole run.');
    this._memory = new Chart(
      view,
      {
        height: 260,
        label: `${trans.__('Memory over simulated time.')} ${keys}`,
        words: size,
        exact,
        increments: BINARY
      },
      trans
    );
    this._busy = new Chart(
      view,
      {
        height: 130,
        label: `${trans.__('Utilization over simulated time.')} ${keys}`,
        words: percent,
        stretches: true,
        increments: [0.25, 0.5, 1]
      },
      trans
    );
    this._allocations = new Allocations(trans);
    this._peak = new Table(trans.__('What made the peak'), 'fg-mod-peak');
    this._lanes = new Lanes(view, trans);
    this._advice = new Advice(trans);
    const copied = trans.__('Bytes copied from each place to every other (without collectives)');
    this._matrix = new Table(copied, 'fg-mod-matrix');
    this._copies = new Table(trans.__('Copies by direction'));
    this._groups = new Table(trans.__('Collectives by operation'), 'fg-mod-groups');
    this._ranks = new Table(trans.__('Collectives by rank'), 'fg-mod-ranks');
    this._top = new Table(trans.__('Ops that took the most time'));
    const section = (id: PartId, heading: string, ...shown: { node: HTMLElement }[]): Section =>
      new Section(
        id,
        heading,
        {
          label: 'CSV',
          title: trans.__('Save these figures as CSV'),
          save: () => saveCsv(id)
        },
        ...shown.map(one => one.node)
      );
    this._parts = {
      memory: section('memory', trans.__('Memory'), this._memory),
      allocations: section(
        'allocations',
        trans.__('Allocations'),
        this._allocations,
        { node: h('h4', { class: 'fg-Table-title' }, trans.__('What made the peak')) },
        this._peak
      ),
      busy: section('busy', trans.__('Utilization'), this._busy),
      timeline: section('timeline', trans.__('Timeline'), this._lanes, this._top),
      transfers: section(
        'transfers',
        trans.__('Transfers'),
        this._copies,
        { node: h('h4', { class: 'fg-Table-title' }, copied) },
        this._matrix
      ),
      collectives: section('collectives', trans.__('Collectives'), this._groups, this._ranks),
      advice: section('advice', trans.__('Advice'), this._advice)
    };
    this.node = h(
      'div',
      { class: 'fg-Parts' },
      ...Object.values(this._parts).map(part => part.node)
    );
  }

  readonly node: HTMLElement;

  /** What was before is left out, ns. */
  since = 0;

  /** The only part that is shown; null for all, one below the other. */
  set only(only: PartId | null) {
    this._only = only;
    for (const part of Object.values(this._parts)) {
      part.alone = only !== null;
      part.node.hidden = !this._wanted(part.id, part.node.hidden);
    }
  }

  /** The parts by their names. */
  get names(): [PartId, string][] {
    return Object.values(this._parts).map(({ id, heading }) => [id, heading.textContent ?? '']);
  }

  /** The node of a part. */
  nodeOf(part: PartId): HTMLElement {
    return this._parts[part].node;
  }

  private _wanted(part: PartId, left: boolean): boolean {
    return this._only === null ? !left : this._only === part;
  }

  /**
   * Show one device of a model, or all. What is shown already and has only grown is drawn anew part by part, each in a
   * frame of its own, so that the page is never held up for all of them; what is asked for meanwhile is shown when all
   * parts have had their turn. Anything else is drawn at once: nobody is to point at another notebook's figures.
   */
  show(model: Model, device: IDevice | undefined, options: IFiguresOptions): void {
    const shown = this._shown;
    this._asked = [model, device, options];
    if (shown?.[0] !== model || shown[1]?.slot !== device?.slot || shown[2] !== options) {
      cancelAnimationFrame(this._frame);
      this._frame = 0;
      this._round = [];
      this._shown = this._asked;
      this._asked = null;
      this._read = performance.now();
      [...this._curves, ...this._words].forEach(draw => draw(model, device, options));
    } else if (!this._frame) {
      this._frame = requestAnimationFrame(() => this._next()); // in this one the sidebar is drawn
    }
  }

  /** Draw the next part of the round, and the one after it with the next frame. */
  private _next(): void {
    this._frame = 0;
    if (this._round.length === 0) {
      if (!this._asked) {
        return;
      }
      this._round = this._begin() ? [...this._curves, ...this._words] : [...this._curves];
    }
    this._round.shift()!(...this._shown!);
    this._frame = requestAnimationFrame(() => this._next());
  }

  /** Begin to show what was asked for; returns whether it is time for the tables, else sees to it that they come. */
  private _begin(): boolean {
    this._shown = this._asked;
    this._asked = null;
    const wait = this._read + READING - performance.now();
    if (wait > 0) {
      this._timer ||= window.setTimeout(() => {
        this._timer = 0;
        this.show(...this._shown!);
      }, wait);
      return false;
    }
    this._read = performance.now();
    return true;
  }

  /** What can be seen now, as the parts of a picture. */
  pictured(): IPart[] {
    const shown: Record<PartId, Omit<IPart, 'heading'>[]> = {
      memory: [{ figure: this._memory.canvas, legend: this._memory.legend }],
      allocations: [
        { figure: this._allocations.canvas, legend: this._allocations.legend },
        { table: this._peak.rows }
      ],
      busy: [{ figure: this._busy.canvas, legend: this._busy.legend }],
      timeline: [
        { figure: this._lanes.canvas, legend: this._lanes.legend },
        { table: this._top.rows }
      ],
      transfers: [{ table: this._copies.rows }, { table: this._matrix.rows }],
      collectives: [{ table: this._groups.rows }, { table: this._ranks.rows }],
      advice: [{ table: this._advice.rows }]
    };
    return Object.values(this._parts)
      .filter(section => section.shows)
      .flatMap(({ id, heading }) =>
        shown[id].map((part, place) => ({
          heading: place === 0 ? (heading.textContent ?? '') : '',
          ...part
        }))
      );
  }

  /** Colours may have changed. */
  retheme(): void {
    this._memory.retheme();
    this._busy.retheme();
    this._allocations.retheme();
    this._lanes.retheme();
  }

  dispose(): void {
    cancelAnimationFrame(this._frame);
    window.clearTimeout(this._timer);
    this._memory.dispose();
    this._busy.dispose();
    this._allocations.dispose();
    this._lanes.dispose();
  }

  private _showMemory(model: Model, device: IDevice | undefined, options: IFiguresOptions): void {
    const { memory } = this._parts;
    const devices = device ? [device] : model.ordered;
    memory.note = device
      ? `${deviceName(device)} ${shortName(device.name)} · ${share(device.memory.allocated, device.memory.total)}`
      : `${model.summary} · ${this._trans.__('memory held by tensors, by GPU')}`;
    const drawn = device
      ? byCategory(model, device, this._trans, this.since)
      : byDevice(model, devices, this._trans, this.since);
    memory.why = drawn.lines.some(line => line.drawn.some(value => Number(value) > 0))
      ? ''
      : this.since > 0
        ? this._trans.__('Nothing has been on the GPU since you cleared this.')
        : this._trans.__('Nothing has been on the GPU yet: x.to("cuda") puts a tensor there.');
    const used = (this._used = series.after(series.utilisation(model, devices), this.since));
    const { timeline } = model;
    this._over = {
      whole: [
        Math.max(this.since, Math.min(drawn.ns[0] ?? 0, used.ns[0] ?? Infinity)),
        Math.max(model.doneNs, drawn.ns[drawn.ns.length - 1] ?? 0, 1000)
      ],
      window: timeline && options.timeline ? [timeline.began, timeline.ended] : null
    };
    this._memory.draw({ ...drawn, ...this._over });
  }

  /** The allocations of the last window, of one device: if all are shown, of the one with the highest peak. */
  private _showAllocations({ allocations }: Model, device: IDevice | undefined): void {
    const part = this._parts.allocations;
    const given = device
      ? allocations.get(device.slot)
      : [...allocations.values()].sort((one, other) => other.peak - one.peak)[0];
    part.why = given
      ? ''
      : allocations.size > 0
        ? this._trans.__('No tensor was on this GPU in the last recorded step.')
        : this._trans.__('Nothing has been recorded yet: run a cell that puts tensors on the GPU.');
    part.note = given ? `${given.title}. ${given.said}` : '';
    if (given) {
      this._allocations.show(given);
      this._peak.show(peakRows(given, this._trans));
    }
  }

  /** Utilisation, over the time of the memory that was drawn before it. */
  private _showBusy(model: Model, device: IDevice | undefined): void {
    const { busy } = this._parts;
    const used = this._used;
    busy.why =
      used.ns.length > 0
        ? ''
        : this._trans.__('Nothing has run yet: run a cell that computes on the GPU.');
    this._busy.draw({
      ns: used.ns,
      lines: [...used.rows].map(([name, parts], place) => ({
        name,
        colour: device ? '--fg-utilisation' : lineColour(place),
        drawn: parts
      })),
      ...this._over,
      strips: !device,
      top: 1,
      said: [...used.rows]
        .map(([name, parts]) =>
          this._trans.__(
            '%1: %2 busy in the last %3.',
            name,
            percent(Number(parts[parts.length - 1] ?? 0)),
            duration((used.ns[used.ns.length - 1] ?? 0) - (used.ns[used.ns.length - 2] ?? 0))
          )
        )
        .join(' ')
    });
    const one = device ?? null;
    busy.note = one
      ? this._trans.__(
          'the share of time in which a kernel ran: in the whole run %1 of %2, %3',
          duration(one.busyNs),
          duration(model.doneNs),
          percent(one.busyNs / Math.max(1, model.doneNs))
        )
      : this._trans.__('the share of time in which a kernel ran');
  }

  private _showTimeline(
    { timeline, steps }: Model,
    _: IDevice | undefined,
    options: IFiguresOptions
  ): void {
    const part = this._parts.timeline;
    part.node.hidden = !this._wanted(part.id, !options.timeline);
    part.why = timeline
      ? ''
      : this._trans.__('No kernel has been recorded yet: run a cell that computes on the GPU.');
    part.note = timeline?.title ?? '';
    if (timeline && options.timeline) {
      this._lanes.show(timeline, steps);
      this._top.show(topRows(timeline, this._trans));
    }
  }

  private _showTransfers(
    model: Model,
    device: IDevice | undefined,
    options: IFiguresOptions
  ): void {
    const part = this._parts.transfers;
    part.node.hidden = !this._wanted(part.id, !options.transfers);
    const matrix = series.transfers(model);
    part.why = matrix.bytes.some(row => row.some(value => value > 0))
      ? ''
      : this._trans.__(
          'Nothing has been copied yet: x.to("cuda") copies a tensor to the GPU, y.cpu() back.'
        );
    this._copies.show(copyRows(device ? [device] : model.ordered, this._trans));
    this._matrix.show(matrixRows(matrix, this._trans));
  }

  private _showCollectives(model: Model, _: IDevice | undefined, options: IFiguresOptions): void {
    const part = this._parts.collectives;
    part.node.hidden = !this._wanted(part.id, !options.collectives);
    const ranks = rankRows(model, this._trans);
    part.why =
      ranks.rows.length + model.collectives.length > 0
        ? ''
        : this._trans.__(
            'No collectives yet: %1 at the top of a cell runs it on two ranks, which can work together through torch.distributed.',
            '%%ranks 2'
          );
    this._groups.show(collectiveRows(model, this._trans));
    this._ranks.show(ranks);
  }

  private _showAdvice({ advice }: Model): void {
    const part = this._parts.advice;
    part.node.hidden = !this._wanted(part.id, advice.length === 0);
    part.why =
      advice.length > 0
        ? ''
        : this._trans.__('Nothing was found that would make the last cell faster.');
    this._advice.show(advice);
  }

  /** In the order in which they are drawn, frame by frame. */
  private _curves: Draw[] = [
    this._showMemory.bind(this),
    this._showAllocations.bind(this),
    this._showBusy.bind(this),
    this._showTimeline.bind(this)
  ];
  private _words: Draw[] = [
    this._showTransfers.bind(this),
    this._showCollectives.bind(this),
    this._showAdvice.bind(this)
  ];
  private _asked: Parameters<Draw> | null = null;
  private _shown: Parameters<Draw> | null = null;
  private _round: Draw[] = [];
  /** When the tables were drawn, ms. */
  private _read = -Infinity;
  private _timer = 0;
  private _frame = 0;
  private _used: series.ICurves = { ns: [], rows: new Map() };
  private _over: { whole: Range; window: Range | null } = { whole: [0, 1000], window: null };
  private _memory: Chart;
  private _allocations: Allocations;
  private _peak: Table;
  private _busy: Chart;
  private _lanes: Lanes;
  private _matrix: Table;
  private _advice: Advice;
  private _only: PartId | null = null;
  private _copies: Table;
  private _groups: Table;
  private _ranks: Table;
  private _top: Table;
  private _parts: Record<PartId, Section>;
}
