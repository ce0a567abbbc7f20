import type { TranslationBundle } from '@jupyterlab/translation';
import type { Message } from '@lumino/messaging';
import { ISignal, Signal } from '@lumino/signaling';
import { Widget } from '@lumino/widgets';

import { h, mark, say } from '../dom';
import type { Follower } from '../kernel/follow';
import type { IActions } from '../sidebar/panel';
import { empty } from '../sidebar/words';
import { deviceName, Model, shortName } from '../telemetry/model';
import type { IDevice } from '../telemetry/schema';
import { duration } from '../units';
import { csv, ofPart } from '../views/csv';
import { Figures, IFiguresOptions } from '../views/figures';
import { draw, save } from '../views/picture';
import type { PartId } from '../views/section';
import { IZoom, View } from '../views/view';

/** What of the settings concerns the dashboard. */
export interface IDashboardOptions extends IFiguresOptions {
  /** What the button of an empty dashboard enables. */
  spec: string;
}

/** The whole picture of the active notebook's GPUs, in the main area. */
export class Dashboard extends Widget {
  constructor(
    private _follower: Follower,
    private _trans: TranslationBundle,
    actions: IActions
  ) {
    super();
    const trans = _trans;
    this.addClass('fg-Views');
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
    this._figures = new Figures(this._view, trans, part => this.saveCsv(part));
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
            title: trans.__('Save everything that is shown, as a picture'),
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
      this._figures.node
    );
    this._view.zoomed.connect(() => {
      this._whole.hidden = this._view.range === null;
      if (this._view.range) {
        this._awaited = null;
      }
      this._chosen.emit();
    });
  }

  options: IDashboardOptions = {
    transfers: true,
    collectives: true,
    timeline: true,
    spec: 'a100:2'
  };

  /** Emitted when another GPU or stretch of time was chosen; what is restored after a reload. */
  get chosen(): ISignal<this, void> {
    return this._chosen;
  }

  /** The slot of the GPU that is shown; -1 for all. */
  get slot(): number {
    return this._slot;
  }

  /** What is zoomed to; null for the whole run. */
  get zoom(): IZoom | null {
    const { range } = this._view;
    const kernel = this._link?.kernel?.id;
    return range && kernel ? { kernel, epoch: this._epoch, range } : this._awaited;
  }

  /** Zoom to this when its machine is shown: after a reload that takes a while. */
  awaitZoom(zoom: IZoom): void {
    this._awaited = zoom;
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
    this._zoomAgain(model);
    say(this._title, document?.title.label ?? this._trans.__('GPUs'));
    say(this._why, nothing?.why ?? '');
    say(this._remedy, nothing?.remedy ?? '');
    say(this._enableButton, this._trans.__('Enable %1', this.options.spec));
    this._enableButton.hidden = this._chooseButton.hidden = !nothing?.enable;
    this._figures.node.hidden = Boolean(nothing) || !model;
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
        ? this._trans.__('paused at %1', duration(model.doneNs))
        : model.busy
          ? this._trans.__('%1 · running', duration(model.doneNs))
          : duration(model.doneNs)
    );
    say(this._pause, this._kept ? this._trans.__('Resume') : this._trans.__('Pause'));
    mark(this._pause, 'aria-pressed', String(Boolean(this._kept)));
    this._fillDevices(model);
    this._figures.show(model, this._one(model), this.options);
  }

  /** Colours may have changed. */
  retheme(): void {
    this._figures.retheme();
  }

  /** Save everything that is shown, as a picture. */
  savePicture(): void {
    const model = this._kept ?? this._live();
    if (!model || this._figures.node.hidden) {
      return;
    }
    const style = getComputedStyle(this.node);
    const picture = draw(
      `${this._title.textContent ?? ''} · ${model.spec}`,
      this._figures.pictured(),
      Math.max(640, Math.min(1400, this.node.clientWidth)),
      style.getPropertyValue('--fg-paper'),
      style.getPropertyValue('--fg-ink')
    );
    picture.toBlob(blob => blob && save(`${this._name()}.png`, blob), 'image/png');
  }

  /** Save the figures of a part, to the last byte and nanosecond. */
  saveCsv(part: PartId): void {
    const model = this._kept ?? this._live();
    if (model) {
      const lines = csv(ofPart(part, model, this._one(model)));
      save(`${this._name()}-${part}.csv`, new Blob([lines], { type: 'text/csv;charset=utf-8' }));
    }
  }

  dispose(): void {
    if (!this.isDisposed) {
      this._figures.dispose();
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

  /** Zoom to what was zoomed to before the reload, if this is its machine and its time has come so far. */
  private _zoomAgain(model: Model | null): void {
    const zoom = this._awaited;
    if (
      zoom &&
      model &&
      zoom.kernel === this._link?.kernel?.id &&
      zoom.epoch === model.epoch &&
      zoom.range[0] < model.doneNs
    ) {
      this._view.range = zoom.range;
    }
  }

  /** The one GPU that is shown; undefined if all are. */
  private _one(model: Model): IDevice | undefined {
    const { ordered } = model;
    return ordered.length === 1 ? ordered[0] : model.devices.get(this._slot);
  }

  private _fillDevices(model: Model): void {
    const { ordered } = model;
    const choices = [
      ...(ordered.length > 1 ? [{ value: '-1', text: this._trans.__('all GPUs') }] : []),
      ...ordered.map(device => ({
        value: String(device.slot),
        text: `${deviceName(device)} ${shortName(device.name)}`
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
  private _figures: Figures;
  private _slot = 0;
  private _epoch = -1;
  private _awaited: IZoom | null = null;
  private _kept: Model | null = null;
  private _link: Follower['link'] = null;
  private _chosen = new Signal<this, void>(this);
}
