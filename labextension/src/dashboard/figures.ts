import type { TranslationBundle } from '@jupyterlab/translation';

import { h } from '../dom';
import { Model, shortName } from '../telemetry/model';
import type { IDevice } from '../telemetry/schema';
import { percent, share, size } from '../units';
import { Chart } from './chart';
import { Lanes } from './lanes';
import { byCategory, byDevice, lineColour } from './memory';
import type { IPart } from './picture';
import { PartId, Section } from './section';
import * as series from './series';
import { collectiveRows, matrixRows, rankRows, Table, topRows } from './tables';
import type { Range, View } from './view';

/** Which parts there are. */
export interface IFiguresOptions {
  transfers: boolean;
  collectives: boolean;
  timeline: boolean;
}

const BINARY = Array.from({ length: 46 }, (_, power) => 2 ** power);

/** What the dashboard shows of a model: its parts one below the other, each with its figures or why there are none. */
export class Figures {
  constructor(
    view: View,
    private _trans: TranslationBundle,
    saveCsv: (part: PartId) => void
  ) {
    const trans = _trans;
    const keys = trans.__('Arrows move the cursor, plus and minus zoom, 0 shows the whole run.');
    this._memory = new Chart(view, {
      height: 240,
      label: `${trans.__('Memory over simulated time.')} ${keys}`,
      words: size,
      increments: BINARY
    });
    this._busy = new Chart(view, {
      height: 130,
      label: `${trans.__('Utilisation over simulated time.')} ${keys}`,
      words: percent,
      increments: [0.25, 0.5, 1]
    });
    this._lanes = new Lanes(view, trans);
    this._matrix = new Table(trans.__('Bytes copied, from row to column'), 'fg-mod-matrix');
    this._groups = new Table(trans.__('Collectives by operation'));
    this._ranks = new Table(trans.__('Collectives by rank'), 'fg-mod-ranks');
    this._top = new Table(trans.__('Kernels that took most'));
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
      busy: section('busy', trans.__('Utilisation'), this._busy),
      timeline: section('timeline', trans.__('Timeline'), this._lanes, this._top),
      transfers: section('transfers', trans.__('Transfers'), this._matrix),
      collectives: section('collectives', trans.__('Collectives'), this._groups, this._ranks)
    };
    this.node = h(
      'div',
      { class: 'fg-Parts' },
      ...Object.values(this._parts).map(part => part.node)
    );
  }

  readonly node: HTMLElement;

  /** Show one device of a model, or all. */
  show(model: Model, device: IDevice | undefined, options: IFiguresOptions): void {
    this._showCurves(model, device, options);
    this._showTimeline(model, options);
    this._showTransfers(model, options);
    this._showCollectives(model, options);
  }

  /** What can be seen now, as the parts of a picture. */
  pictured(): IPart[] {
    const shown: Record<PartId, Omit<IPart, 'heading'>[]> = {
      memory: [{ figure: this._memory.canvas, legend: this._memory.legend }],
      busy: [{ figure: this._busy.canvas, legend: this._busy.legend }],
      timeline: [
        { figure: this._lanes.canvas, legend: this._lanes.legend },
        { table: this._top.rows }
      ],
      transfers: [{ table: this._matrix.rows }],
      collectives: [{ table: this._groups.rows }, { table: this._ranks.rows }]
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
    this._lanes.retheme();
  }

  dispose(): void {
    this._memory.dispose();
    this._busy.dispose();
    this._lanes.dispose();
  }

  /** Memory and utilisation, over the same time. */
  private _showCurves(model: Model, device: IDevice | undefined, options: IFiguresOptions): void {
    const { memory, busy } = this._parts;
    const devices = device ? [device] : model.ordered;
    memory.note = device
      ? `${series.deviceName(device)} ${shortName(device.name)} · ${share(device.memory.allocated, device.memory.total)}`
      : `${model.summary} · ${this._trans.__('held by tensors, each GPU')}`;
    const drawn = device ? byCategory(model, device, this._trans) : byDevice(model, devices);
    memory.why = drawn.lines.some(line => line.drawn.some(value => Number(value) > 0))
      ? ''
      : this._trans.__('Nothing was on the GPU yet: x.to("cuda") puts a tensor there.');
    const used = series.utilisation(model, devices);
    busy.why =
      used.ns.length > 0
        ? ''
        : this._trans.__('Nothing ran yet: run a cell that computes on the GPU.');
    const { timeline } = model;
    const whole: Range = [
      Math.min(drawn.ns[0] ?? 0, used.ns[0] ?? Infinity),
      Math.max(model.nowNs, drawn.ns[drawn.ns.length - 1] ?? 0, 1000)
    ];
    const window: Range | null =
      timeline && options.timeline ? [timeline.began, timeline.ended] : null;
    this._memory.draw({ ...drawn, whole, window });
    this._busy.draw({
      ns: used.ns,
      lines: [...used.rows].map(([name, parts], place) => ({
        name,
        colour: device ? '--fg-utilisation' : lineColour(place),
        drawn: parts
      })),
      whole,
      top: 1,
      window
    });
  }

  private _showTimeline({ timeline }: Model, options: IFiguresOptions): void {
    const part = this._parts.timeline;
    part.node.hidden = !options.timeline;
    part.why = timeline
      ? ''
      : this._trans.__('No kernel was recorded yet: run a cell that computes on the GPU.');
    part.note = timeline?.title ?? '';
    if (timeline && options.timeline) {
      this._lanes.show(timeline);
      this._top.show(topRows(timeline, this._trans));
    }
  }

  private _showTransfers(model: Model, options: IFiguresOptions): void {
    const part = this._parts.transfers;
    part.node.hidden = !options.transfers;
    const matrix = series.transfers(model);
    part.why = matrix.bytes.some(row => row.some(value => value > 0))
      ? ''
      : this._trans.__(
          'Nothing was copied yet: x.to("cuda") copies a tensor to the GPU, y.cpu() back.'
        );
    this._matrix.show(matrixRows(matrix, this._trans));
  }

  private _showCollectives(model: Model, options: IFiguresOptions): void {
    const part = this._parts.collectives;
    part.node.hidden = !options.collectives;
    const ranks = rankRows(model, this._trans);
    part.why =
      ranks.rows.length + model.collectives.length > 0
        ? ''
        : this._trans.__(
            'No collectives yet: %1 at the top of a cell runs it on two ranks, and torch.distributed lets them work together.',
            '%%ranks 2'
          );
    this._groups.show(collectiveRows(model, this._trans));
    this._ranks.show(ranks);
  }

  private _memory: Chart;
  private _busy: Chart;
  private _lanes: Lanes;
  private _matrix: Table;
  private _groups: Table;
  private _ranks: Table;
  private _top: Table;
  private _parts: Record<PartId, Section>;
}
