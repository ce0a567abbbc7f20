import type { TranslationBundle } from '@jupyterlab/translation';
import type { Message } from '@lumino/messaging';
import { ISignal, Signal } from '@lumino/signaling';
import { Widget } from '@lumino/widgets';

import { h, mark, say } from '../dom';
import type { Follower } from '../kernel/follow';
import type { IActions } from '../sidebar/panel';
import { empty } from '../sidebar/words';
import { Model, shortName } from '../telemetry/model';
import type { IDevice } from '../telemetry/schema';
import { duration, percent, share, size } from '../units';
import { Chart, IChartData, ILine } from './chart';
import * as csv from './csv';
import { Lanes } from './lanes';
import { draw, IPart, save } from './picture';
import { Section } from './section';
import * as series from './series';
import { collectiveRows, matrixRows, rankRows, Table, topRows } from './tables';
import { Range, View } from './view';

/** What of the settings concerns the dashboard. */
export interface IDashboardOptions {
  transfers: boolean;
  collectives: boolean;
  timeline: boolean;
  spec: string;
}

/** Curves for so many devices have a colour of their own; then they begin anew. */
const COLOURS = 8;

const BINARY = Array.from({ length: 46 }, (_, power) => 2 ** power);

/** The whole picture of the active notebook's GPUs, in the main area. */
export class Dashboard extends Widget {
  constructor(
    private _follower: Follower,
    private _trans: TranslationBundle,
    actions: IActions
  ) {
    super();
    const trans = _trans;
    this.addClass('fg-Dashboard');
    this._device = h('select', {
      class: 'fg-Select',
      'aria-label': trans.__('GPU'),
      onchange: () => this.choose(Number(this._device.value))
    });
    this._pause = h('button', {
      class: 'fg-Small',
      type: 'button',
      'aria-pressed': 'false',
      onclick: () => this.pause()
    });
    this._whole = h(
      'button',
      { class: 'fg-Small', type: 'button', hidden: true, onclick: () => (this._view.range = null) },
      trans.__('Show the whole run')
    );
    this._enableButton = h('button', {
      class: 'jp-mod-styled jp-mod-accept fg-Button',
      type: 'button',
      onclick: () => actions.enable(this.options.spec)
    });
    this._chooseButton = h(
      'button',
      { class: 'jp-mod-styled fg-Button', type: 'button', onclick: () => actions.choose() },
      trans.__('Choose GPUs …')
    );
    const keys = trans.__('Arrows move the cursor, plus and minus zoom, 0 shows the whole run.');
    this._memory = new Chart(this._view, {
      height: 240,
      label: `${trans.__('Memory over simulated time.')} ${keys}`,
      words: size,
      increments: BINARY
    });
    this._busy = new Chart(this._view, {
      height: 130,
      label: `${trans.__('Utilisation over simulated time.')} ${keys}`,
      words: percent,
      increments: [0.25, 0.5, 1]
    });
    this._lanes = new Lanes(this._view, trans);
    this._matrix = new Table(trans.__('Bytes copied, from row to column'), 'fg-mod-matrix');
    this._groups = new Table(trans.__('Collectives by operation'));
    this._ranks = new Table(trans.__('Collectives by rank'), 'fg-mod-ranks');
    this._top = new Table(trans.__('Kernels that took most'));
    const saved = (make: () => void): { label: string; title: string; save: () => void } => ({
      label: 'CSV',
      title: trans.__('Save these figures as CSV'),
      save: make
    });
    this._parts = {
      memory: new Section(
        'memory',
        trans.__('Memory'),
        saved(() => this.saveCsv('memory')),
        this._memory.node
      ),
      busy: new Section(
        'busy',
        trans.__('Utilisation'),
        saved(() => this.saveCsv('busy')),
        this._busy.node
      ),
      timeline: new Section(
        'timeline',
        trans.__('Timeline'),
        saved(() => this.saveCsv('timeline')),
        this._lanes.node,
        this._top.node
      ),
      transfers: new Section(
        'transfers',
        trans.__('Transfers'),
        saved(() => this.saveCsv('transfers')),
        this._matrix.node
      ),
      collectives: new Section(
        'collectives',
        trans.__('Collectives'),
        saved(() => this.saveCsv('collectives')),
        this._groups.node,
        this._ranks.node
      )
    };
    this._shown = h(
      'div',
      { class: 'fg-Parts' },
      ...Object.values(this._parts).map(part => part.node)
    );
    this.node.append(
      h(
        'header',
        { class: 'fg-Dashboard-head' },
        this._title,
        this._state,
        this._device,
        this._whole,
        this._pause,
        h(
          'button',
          {
            class: 'fg-Small',
            type: 'button',
            title: trans.__('Save all that is shown as a picture'),
            onclick: () => this.savePicture()
          },
          'PNG'
        )
      ),
      h(
        'div',
        { class: 'fg-Empty', role: 'status' },
        this._why,
        this._remedy,
        h('div', { class: 'fg-Buttons' }, this._enableButton, this._chooseButton)
      ),
      this._shown
    );
    this._view.zoomed.connect(() => {
      this._whole.hidden = this._view.range === null;
    });
  }

  options: IDashboardOptions = {
    transfers: true,
    collectives: true,
    timeline: true,
    spec: 'a100:2'
  };

  /** Emitted when another GPU was chosen; what is restored after a reload. */
  get chosen(): ISignal<this, void> {
    return this._chosen;
  }

  /** The slot of the GPU that is shown; -1 for all. */
  get slot(): number {
    return this._slot;
  }

  /** Show this GPU, by its slot; -1 for all. */
  choose(slot: number): void {
    if (slot !== this._slot) {
      this._slot = slot;
      this._chosen.emit();
      this.show_();
    }
  }

  /** Let the figures stand still, or go on. */
  pause(): void {
    this._kept = this._kept ? null : (this._live()?.frozen() ?? null);
    this.show_();
  }

  /** Show how things are now. */
  show_(): void {
    if (!this.isVisible || this.isDisposed) {
      return;
    }
    const { link, document } = this._follower;
    if (link !== this._link) {
      // Another notebook: what was kept is not its.
      this._link = link;
      this._kept = null;
      this._view.range = null;
    }
    const nothing = this._kept
      ? null
      : empty(link?.standing ?? null, this._trans, {
          version: link?.fault?.version ?? null,
          where: link?.fault?.where ?? ''
        });
    const model = this._kept ?? this._live();
    if (model && model.epoch !== this._epoch) {
      this._epoch = model.epoch; // another machine, whose time begins anew
      this._view.range = null;
    }
    say(this._title, document?.title.label ?? this._trans.__('GPUs'));
    say(this._why, nothing?.why ?? '');
    say(this._remedy, nothing?.remedy ?? '');
    say(this._enableButton, this._trans.__('Enable %1', this.options.spec));
    this._enableButton.hidden = this._chooseButton.hidden = !nothing?.enable;
    this._shown.hidden = Boolean(nothing) || !model;
    for (const control of [this._device, this._pause]) {
      control.hidden = Boolean(nothing);
    }
    if (nothing || !model) {
      say(this._state, '');
      return;
    }
    say(
      this._state,
      this._kept
        ? this._trans.__('paused at %1', duration(model.nowNs))
        : model.busy
          ? this._trans.__('%1 · running', duration(model.nowNs))
          : duration(model.nowNs)
    );
    say(this._pause, this._kept ? this._trans.__('Go on') : this._trans.__('Pause'));
    mark(this._pause, 'aria-pressed', String(Boolean(this._kept)));
    this._fill(model);
  }

  /** Colours may have changed. */
  retheme(): void {
    this._memory.retheme();
    this._busy.retheme();
    this._lanes.retheme();
  }

  /** Save all that is shown as a picture. */
  savePicture(): void {
    const model = this._kept ?? this._live();
    if (!model || this._shown.hidden) {
      return;
    }
    const style = getComputedStyle(this.node);
    const parts: IPart[] = [];
    const add = (id: keyof Dashboard['_parts'], ...more: Omit<IPart, 'heading'>[]): void => {
      const section = this._parts[id];
      if (
        !section.node.hidden &&
        !section.node.querySelector('.fg-Section-body')?.hasAttribute('hidden')
      ) {
        more.forEach((part, place) =>
          parts.push({ heading: place === 0 ? (section.heading.textContent ?? '') : '', ...part })
        );
      }
    };
    add('memory', { figure: this._memory.canvas, legend: this._memory.legend });
    add('busy', { figure: this._busy.canvas, legend: this._busy.legend });
    add(
      'timeline',
      { figure: this._lanes.canvas, legend: this._lanes.legend },
      { table: this._top.rows }
    );
    add('transfers', { table: this._matrix.rows });
    add('collectives', { table: this._groups.rows }, { table: this._ranks.rows });
    const picture = draw(
      `${this._title.textContent ?? ''} · ${model.spec}`,
      parts,
      Math.max(640, Math.min(1400, this.node.clientWidth)),
      style.getPropertyValue('--jp-layout-color1'),
      style.getPropertyValue('--jp-ui-font-color1')
    );
    picture.toBlob(blob => blob && save(`${this._name()}.png`, blob), 'image/png');
  }

  /** Save the figures of a part, to the last byte and nanosecond. */
  saveCsv(part: keyof Dashboard['_parts']): void {
    const model = this._kept ?? this._live();
    if (!model) {
      return;
    }
    const device = this._one(model);
    const lines = {
      memory: () =>
        csv.ofCurves(
          device
            ? series.categories(model, device.slot)
            : series.held(model, model.ordered, Infinity),
          'bytes'
        ),
      busy: () => csv.ofCurves(series.utilisation(model, device ? [device] : model.ordered), ''),
      timeline: () => (model.timeline ? csv.ofTimeline(model.timeline) : []),
      transfers: () => csv.ofMatrix(series.transfers(model)),
      collectives: () => [
        ['operation', 'ranks', 'calls', 'bytes', 'ns', 'bus_bytes_per_second'],
        ...model.collectives.map(one => [
          one.operation,
          one.ranks.join(' '),
          one.count,
          one.nbytes,
          one.ns,
          one.busBandwidth
        ])
      ]
    }[part]();
    save(
      `${this._name()}-${part}.csv`,
      new Blob([csv.csv(lines)], { type: 'text/csv;charset=utf-8' })
    );
  }

  dispose(): void {
    if (!this.isDisposed) {
      this._memory.dispose();
      this._busy.dispose();
      this._lanes.dispose();
      super.dispose();
    }
  }

  protected onAfterShow(_: Message): void {
    this.show_();
  }

  protected onAfterAttach(_: Message): void {
    this.show_();
  }

  protected onResize(_: Widget.ResizeMessage): void {
    this.show_();
  }

  protected onActivateRequest(_: Message): void {
    this._pause.focus();
  }

  private _live(): Model | null {
    const { link } = this._follower;
    return link?.standing === 'live' ? link.model : null;
  }

  /** The one GPU that is shown; undefined if all are. */
  private _one(model: Model): IDevice | undefined {
    const { ordered } = model;
    return ordered.length === 1 ? ordered[0] : model.devices.get(this._slot);
  }

  private _fill(model: Model): void {
    this._fillDevices(model);
    const device = this._one(model);
    const devices = device ? [device] : model.ordered;
    this._parts.memory.note = device
      ? `${series.deviceName(device)} ${shortName(device.name)} · ${share(device.memory.allocated, device.memory.total)}`
      : `${model.summary} · ${this._trans.__('held by tensors, each GPU')}`;
    const drawn = device ? this._stack(model, device) : this._lines(model, devices);
    this._parts.memory.why = drawn.lines.some(line => line.drawn.some(value => Number(value) > 0))
      ? ''
      : this._trans.__('Nothing was on the GPU yet: x.to("cuda") puts a tensor there.');
    const used = series.utilisation(model, devices);
    this._parts.busy.why =
      used.ns.length > 0
        ? ''
        : this._trans.__('Nothing ran yet: run a cell that computes on the GPU.');
    const { timeline } = model;
    const whole: Range = [
      Math.min(drawn.ns[0] ?? 0, used.ns[0] ?? Infinity),
      Math.max(model.nowNs, drawn.ns[drawn.ns.length - 1] ?? 0, 1000)
    ];
    const window: Range | null =
      timeline && this.options.timeline ? [timeline.began, timeline.ended] : null;
    this._memory.draw({ ...drawn, whole, window });
    this._busy.draw({
      ns: used.ns,
      lines: [...used.rows].map(([name, parts], place) => ({
        name,
        colour: device ? '--fg-utilisation' : `--fg-line-${place % COLOURS}`,
        drawn: parts
      })),
      whole,
      top: 1,
      window
    });
    const seen = this._parts;
    seen.timeline.node.hidden = !this.options.timeline;
    seen.timeline.why = timeline
      ? ''
      : this._trans.__('No kernel was recorded yet: run a cell that computes on the GPU.');
    seen.timeline.note = timeline?.title ?? '';
    if (timeline && this.options.timeline) {
      this._lanes.show(timeline);
      this._top.show(topRows(timeline, this._trans));
    }
    seen.transfers.node.hidden = !this.options.transfers;
    const matrix = series.transfers(model);
    seen.transfers.why = matrix.bytes.some(row => row.some(value => value > 0))
      ? ''
      : this._trans.__(
          'Nothing was copied yet: x.to("cuda") copies a tensor to the GPU, y.cpu() back.'
        );
    this._matrix.show(matrixRows(matrix, this._trans));
    seen.collectives.node.hidden = !this.options.collectives;
    const ranks = rankRows(model, this._trans);
    seen.collectives.why =
      ranks.rows.length + model.collectives.length > 0
        ? ''
        : this._trans.__(
            'No collectives yet: %1 at the top of a cell runs it on two ranks, and torch.distributed lets them work together.',
            '%%ranks 2'
          );
    this._groups.show(collectiveRows(model, this._trans));
    this._ranks.show(ranks);
  }

  private _fillDevices(model: Model): void {
    const { ordered } = model;
    const choices = [
      ...(ordered.length > 1 ? [{ value: '-1', text: this._trans.__('all GPUs') }] : []),
      ...ordered.map(device => ({
        value: String(device.slot),
        text: `${series.deviceName(device)} ${shortName(device.name)}`
      }))
    ];
    const told = choices.map(one => `${one.value} ${one.text}`).join('\n');
    if (this._device.dataset.told !== told) {
      this._device.dataset.told = told;
      this._device.replaceChildren(
        ...choices.map(one => h('option', { value: one.value }, one.text))
      );
    }
    const value = String(this._one(model)?.slot ?? -1);
    if (this._device.value !== value) {
      this._device.value = value;
    }
  }

  /** One GPU: its memory by what it is for. */
  private _stack(model: Model, device: IDevice): Omit<IChartData, 'whole'> {
    const { ns, rows } = series.categories(model, device.slot);
    const layers = series.CATEGORIES.map(name => rows.get(name) as number[]);
    const sums = series.stacked(layers);
    const reserved = rows.get('reserved') as number[];
    const lines: ILine[] = series.CATEGORIES.map((name, place) => ({
      name: this._category(name),
      colour: `--fg-${name.replace('_', '-')}`,
      drawn: sums[place]!,
      said: layers[place]!,
      filled: true
    }))
      .filter(line => line.said.some(value => value > 0))
      .reverse(); // the highest is drawn first, and the others over it
    lines.push({
      name: this._trans.__('reserved'),
      colour: '--fg-reserved',
      drawn: reserved,
      dashed: true
    });
    const most = reserved.reduce(
      (best, value) => Math.max(best, value),
      Math.max(0, ...(sums[sums.length - 1] ?? []))
    );
    const top = Math.max(1024, most * 1.08);
    if (top > 0.6 * device.memory.total) {
      lines.push({
        name: this._trans.__('capacity'),
        colour: '--fg-full',
        drawn: ns.map(() => device.memory.total)
      });
    }
    return {
      ns,
      lines,
      top: top > 0.6 * device.memory.total ? 1.05 * device.memory.total : top,
      steps: model.steps.map(([moment]) => moment)
    };
  }

  /** All GPUs: what each holds. */
  private _lines(model: Model, devices: IDevice[]): Omit<IChartData, 'whole'> {
    const { ns, rows } = series.held(model, devices);
    const most = Math.max(1024, ...[...rows.values()].flat().map(value => value ?? 0));
    return {
      ns,
      lines: [...rows].map(([name, drawn], place) => ({
        name,
        drawn,
        colour: `--fg-line-${place % COLOURS}`
      })),
      top: most * 1.08,
      steps: model.steps.map(([moment]) => moment)
    };
  }

  private _category(name: string): string {
    const words: Record<string, string> = {
      parameters: this._trans.__('parameters'),
      optimizer_state: this._trans.__('optimizer state'),
      workspace: this._trans.__('workspace'),
      gradients: this._trans.__('gradients'),
      activations: this._trans.__('activations'),
      inputs: this._trans.__('inputs'),
      other: this._trans.__('other')
    };
    return words[name] ?? name;
  }

  /** What files are called. */
  private _name(): string {
    const label = (this._title.textContent ?? '').replace(/\.ipynb$/, '');
    return `${label.replace(/[^\p{L}\p{N}._-]+/gu, '-') || 'notebook'}-gpus`;
  }

  private _view = new View();
  private _title = h('h2', { class: 'fg-Title' });
  private _state = h('span', { class: 'fg-Busy', role: 'status' });
  private _why = h('p', { class: 'fg-Why' });
  private _remedy = h('p', { class: 'fg-Remedy' });
  private _device: HTMLSelectElement;
  private _pause: HTMLButtonElement;
  private _whole: HTMLButtonElement;
  private _enableButton: HTMLButtonElement;
  private _chooseButton: HTMLButtonElement;
  private _shown: HTMLElement;
  private _memory: Chart;
  private _busy: Chart;
  private _lanes: Lanes;
  private _matrix: Table;
  private _groups: Table;
  private _ranks: Table;
  private _top: Table;
  private _parts: Record<'memory' | 'busy' | 'timeline' | 'transfers' | 'collectives', Section>;
  private _slot = 0;
  private _epoch = -1;
  private _kept: Model | null = null;
  private _link: Follower['link'] = null;
  private _chosen = new Signal<this, void>(this);
}
