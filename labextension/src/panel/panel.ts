import { h, mark, say } from '../dom';
import { Painter } from '../painter';
import { deviceName, Model, shortName } from '../telemetry/model';
import { parse } from '../telemetry/read';
import { Fault, VERSION } from '../telemetry/schema';
import type { IDevice } from '../telemetry/schema';
import { duration } from '../units';
import { Card } from '../views/card';
import { csv, ofPart } from '../views/csv';
import { Figures } from '../views/figures';
import { save } from '../views/picture';
import { PartId, PARTS } from '../views/section';
import { plain } from '../views/trans';
import { View } from '../views/view';

const THEMES = ['auto', 'light', 'dark'];

const FIGURES = { transfers: true, collectives: true, timeline: true };

/** The figures on a card; the rest is in the tabs. */
const CARD = { transfers: false, collectives: false };

/** The panel in a notebook: the GPUs as cards, and below them one part at a time. It shows what the dashboard shows. */
export class Panel {
  constructor(theme: string) {
    this._theme = THEMES.includes(theme) ? theme : 'auto';
    this._figures = new Figures(this._view, plain, part => this._save(part));
    this._pause = h('button', { class: 'fg-Small', type: 'button', onclick: () => this._freeze() });
    this._whole = h(
      'button',
      { class: 'fg-Small', type: 'button', hidden: true, onclick: () => (this._view.range = null) },
      'Show the whole run'
    );
    this._device = h('select', {
      class: 'fg-Select',
      'aria-label': 'GPU',
      onchange: () => this._choose(Number(this._device.value))
    });
    const themes = h(
      'select',
      {
        class: 'fg-Select',
        'aria-label': 'Theme',
        onchange: () => {
          this._theme = themes.value;
          this._themed();
        }
      },
      ...THEMES.map(name => h('option', { value: name }, `${name} theme`))
    );
    themes.value = this._theme;
    this._tabs = h('div', {
      class: 'fg-Panel-tabs',
      role: 'tablist',
      'aria-label': 'What to show',
      onkeydown: event => this._key(event as KeyboardEvent)
    });
    for (const [id, name] of this._figures.names) {
      const panel = this._figures.nodeOf(id);
      panel.id = `${this._id}-${id}`;
      panel.setAttribute('role', 'tabpanel');
      this._tabs.append(
        h(
          'button',
          {
            type: 'button',
            role: 'tab',
            'data-tab': id,
            'aria-controls': panel.id,
            onclick: () => this._turn(id)
          },
          name
        )
      );
    }
    this.node = h(
      'section',
      { class: 'fg-Views fg-Panel', 'aria-label': 'GPUs' },
      h(
        'header',
        { class: 'fg-Panel-head' },
        this._title,
        this._status,
        this._clock,
        this._device,
        this._whole,
        this._pause,
        h(
          'button',
          {
            class: 'fg-Small',
            type: 'button',
            title: 'Hide everything before now',
            onclick: () => this._clear()
          },
          'Clear'
        ),
        themes
      ),
      this._why,
      this._error,
      this._cards,
      this._tabs,
      h('div', { class: 'fg-Panel-body' }, this._figures.node)
    );
    this._view.zoomed.connect(() => (this._whole.hidden = this._view.range === null));
    this._observer = new MutationObserver(() => this._themed());
    this._observer.observe(document.body, { attributes: true });
    this._themed();
    this._turn('memory');
  }

  readonly node: HTMLElement;

  /**
   * Take in a message of the kernel.
   *
   * @returns whether one in between was missed, and all should be asked for.
   */
  take(message: unknown): boolean {
    const told = parse(message);
    if (told instanceof Fault) {
      this._fault = told.newer
        ? `This panel understands telemetry of version ${VERSION}; the kernel's is version ${told.version}. Restart the kernel, and reload the page.`
        : `This panel cannot read what the kernel sends (${told.where}). Restart the kernel, and reload the page.`;
      this._painter.ask();
      return false;
    }
    this._fault = '';
    const missed = this._model.take(told);
    if (!this._kept) {
      this._painter.ask();
    }
    return missed;
  }

  dispose(): void {
    this._observer.disconnect();
    this._figures.dispose();
  }

  private _show(): void {
    const model = this._kept ?? this._model;
    const devices = model.ordered.filter(device => device.index >= 0);
    const nothing =
      this._fault ||
      (!model.heard
        ? 'The kernel has not sent anything yet. It will when the running cell gives it time.'
        : devices.length === 0
          ? model.note
          : '');
    const state = this._kept
      ? 'paused'
      : !model.heard
        ? 'waiting for the kernel'
        : !model.enabled
          ? 'switched off'
          : model.busy
            ? 'running'
            : 'idle';
    say(this._status, state);
    mark(this.node, 'data-state', state);
    say(this._why, nothing);
    this._why.hidden = nothing === '';
    for (const part of [this._cards, this._tabs, this._figures.node]) {
      part.hidden = nothing !== '';
    }
    say(this._pause, this._kept ? 'Resume' : 'Pause');
    mark(this._pause, 'aria-pressed', String(this._kept !== null));
    mark(this._pause, 'title', 'Stop drawing; the program goes on');
    const error = nothing || model.error?.kind === 'NotSolvedYet' ? null : model.error;
    const said = error ? `${error.kind}: ${error.message}` : '';
    say(this._error, said);
    mark(this._error, 'title', said);
    if (nothing) {
      say(this._clock, '');
      this._device.hidden = true;
      return;
    }
    if (model.epoch !== this._epoch) {
      this._epoch = model.epoch; // another machine, whose time begins anew
      this._view.range = null;
      this._figures.since = 0;
      this._slot = devices[0]!.slot;
    }
    const time = duration(model.doneNs);
    say(this._clock, `${model.spec} · ${model.real ? time : `${time} simulated`}`);
    mark(
      this._clock,
      'title',
      model.real ? 'time since the GPUs are watched' : 'simulated time since the GPUs were enabled'
    );
    say(this._title, model.real ? 'Real GPUs' : 'Simulated GPUs');
    this._fillDevices(devices);
    this._showCards(model, devices);
    const advice = this._tabs.querySelector<HTMLElement>('[data-tab=advice]')!;
    advice.hidden = model.advice.length === 0 && this._part !== 'advice';
    this._figures.show(model, model.devices.get(this._slot), FIGURES);
  }

  private _showCards(model: Model, devices: IDevice[]): void {
    while (this._shown.length > devices.length) {
      this._shown.pop()?.node.remove();
    }
    while (this._shown.length < devices.length) {
      const card = new Card(plain, slot => this._choose(slot), '%1: show its memory');
      this._shown.push(card);
      this._cards.append(card.node);
    }
    const style = getComputedStyle(this.node);
    const colours = {
      memory: style.getPropertyValue('--fg-memory'),
      utilisation: style.getPropertyValue('--fg-utilisation')
    };
    devices.forEach((device, place) =>
      this._shown[place]!.show(device, model, CARD, colours, device.slot === this._slot)
    );
  }

  private _fillDevices(devices: IDevice[]): void {
    const choices = [
      ...devices.map(one => [String(one.slot), `${deviceName(one)} ${shortName(one.name)}`]),
      ['-1', 'all GPUs']
    ];
    const told = choices.join('\n');
    if (this._device.dataset.told !== told) {
      this._device.dataset.told = told;
      this._device.replaceChildren(
        ...choices.map(([value, text]) => h('option', { value }, text!))
      );
    }
    this._device.value = String(this._slot);
    this._device.hidden = devices.length < 2;
  }

  private _choose(slot: number): void {
    this._slot = slot;
    this._painter.ask();
  }

  private _turn(part: PartId, focus = false): void {
    this._part = part;
    for (const button of this._tabs.querySelectorAll<HTMLElement>('[role=tab]')) {
      const chosen = button.dataset.tab === part;
      button.setAttribute('aria-selected', String(chosen));
      button.tabIndex = chosen ? 0 : -1;
      if (chosen && focus) {
        button.focus();
      }
    }
    this._figures.only = part;
    this._painter.ask();
  }

  private _key(event: KeyboardEvent): void {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (step) {
      const shown = PARTS.filter(
        part => !this._tabs.querySelector<HTMLElement>(`[data-tab=${part}]`)!.hidden
      );
      const place = shown.indexOf(this._part) + step + shown.length;
      this._turn(shown[place % shown.length]!, true);
      event.preventDefault();
    }
  }

  private _freeze(): void {
    this._kept = this._kept ? null : this._model.frozen();
    this._painter.ask();
  }

  private _clear(): void {
    this._figures.since = (this._kept ?? this._model).doneNs;
    this._view.range = null;
    this._painter.ask();
  }

  private _save(part: PartId): void {
    const model = this._kept ?? this._model;
    const lines = csv(ofPart(part, model, model.devices.get(this._slot)));
    save(`gpus-${part}.csv`, new Blob([lines], { type: 'text/csv;charset=utf-8' }));
  }

  /** Light or dark as the page is, or as was asked for. */
  private _themed(): void {
    const { body } = document;
    const inLab = body.dataset.jpThemeLight !== undefined;
    const dark =
      this._theme === 'dark' ||
      (this._theme === 'auto' &&
        (inLab
          ? body.dataset.jpThemeLight === 'false'
          : body.classList.contains('vscode-dark') ||
            body.classList.contains('theme-dark') ||
            (!body.classList.contains('vscode-light') &&
              window.matchMedia('(prefers-color-scheme: dark)').matches)));
    const own = !inLab || this._theme !== 'auto';
    const told = `${dark} ${own} ${body.dataset.jpThemeName ?? ''}`;
    if (told !== this._toldTheme) {
      this._toldTheme = told;
      this.node.dataset.theme = dark ? 'dark' : 'light';
      this.node.classList.toggle('fg-mod-own', own);
      this._figures.retheme();
      this._painter.ask();
    }
  }

  private _id = `fg-${Math.random().toString(36).slice(2, 8)}`;
  private _model = new Model();
  private _kept: Model | null = null;
  private _fault = '';
  private _theme: string;
  private _toldTheme = '';
  private _slot = 0;
  private _epoch = -1;
  private _part: PartId = 'memory';
  private _shown: Card[] = [];
  private _view = new View();
  private _painter = new Painter(() => this._show());
  private _figures: Figures;
  private _status = h('span', { class: 'fg-Panel-status', role: 'status' });
  private _title = h('strong', {}, 'Simulated GPUs');
  private _clock = h('span', { class: 'fg-Panel-clock' });
  private _why = h('p', { class: 'fg-Section-why' });
  private _error = h('div', { class: 'fg-Error', role: 'status', tabindex: 0 });
  private _cards = h('div', { class: 'fg-Cards' });
  private _tabs: HTMLElement;
  private _device: HTMLSelectElement;
  private _pause: HTMLButtonElement;
  private _whole: HTMLButtonElement;
  private _observer: MutationObserver;
}
