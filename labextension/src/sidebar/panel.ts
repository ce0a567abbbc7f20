import type { TranslationBundle } from '@jupyterlab/translation';
import type { Message } from '@lumino/messaging';
import { Widget } from '@lumino/widgets';

import { h, mark, say } from '../dom';
import type { Follower } from '../kernel/follow';
import { rate } from '../units';
import { Card, ICardOptions } from '../views/card';
import { empty } from './words';

/** What the sidebar can have done. */
export interface IActions {
  enable(spec: string): void;
  choose(): void;
  reset(): void;
  /** Open the dashboard on a GPU, by its slot. */
  look(slot: number): void;
}

/** What of the settings concerns the sidebar. */
export interface IPanelOptions extends ICardOptions {
  advice: boolean;
  /** What the button of an empty sidebar enables. */
  spec: string;
}

/** The sidebar "GPUs": a card a device of the active notebook's kernel, or why there is none and what to do. */
export class GpusPanel extends Widget {
  constructor(
    private _follower: Follower,
    private _trans: TranslationBundle,
    private _actions: IActions
  ) {
    super();
    const actions = _actions;
    this.addClass('fg-Views');
    this.addClass('fg-Gpus');
    this._chooseButton = h(
      'button',
      { class: 'jp-mod-styled fg-Button', type: 'button', onclick: () => actions.choose() },
      _trans.__('Choose GPUs …')
    );
    this._dashboardButton = h(
      'button',
      { class: 'jp-mod-styled fg-Button', type: 'button', onclick: () => actions.look(-1) },
      _trans.__('Dashboard')
    );
    this._resetButton = h(
      'button',
      {
        class: 'jp-mod-styled fg-Button',
        type: 'button',
        title: _trans.__('Start again with the same GPUs: empty memory, counters at 0'),
        onclick: () => actions.reset()
      },
      _trans.__('Reset')
    );
    this._enableButton = h('button', {
      class: 'jp-mod-styled jp-mod-accept fg-Button',
      type: 'button',
      onclick: () => actions.enable(this.options.spec)
    });
    this.node.append(
      h(
        'header',
        { class: 'fg-Head' },
        h('div', { class: 'fg-Head-line' }, this._title, this._busy),
        this._spec
      ),
      h('div', { class: 'fg-Empty', role: 'status' }, this._why, this._remedy),
      h(
        'div',
        { class: 'fg-Buttons' },
        this._enableButton,
        this._dashboardButton,
        this._chooseButton,
        this._resetButton
      ),
      this._error,
      this._cards,
      this._ranks,
      this._advice
    );
  }

  options: IPanelOptions = { transfers: true, collectives: true, advice: true, spec: 'a100:2' };

  /** Show how things are now. */
  show_(): void {
    if (!this.isVisible) {
      return;
    }
    // Before anything is changed: afterwards the page would have to compute it anew.
    const style = getComputedStyle(this.node);
    const colours = {
      memory: style.getPropertyValue('--fg-memory'),
      utilisation: style.getPropertyValue('--fg-utilisation')
    };
    const { link, document } = this._follower;
    const model = link?.model;
    const nothing = empty(link?.standing ?? null, this._trans, {
      version: link?.fault?.version ?? null,
      where: link?.fault?.where ?? ''
    });
    say(this._title, document?.title.label ?? this._trans.__('GPUs'));
    say(this._busy, !nothing && model?.busy ? this._trans.__('running') : '');
    say(this._spec, !nothing && model ? model.spec : '');
    say(this._why, nothing?.why ?? '');
    say(this._remedy, nothing?.remedy ?? '');
    say(this._enableButton, this._trans.__('Enable %1', this.options.spec));
    this._enableButton.hidden = !nothing?.enable;
    this._chooseButton.hidden = Boolean(nothing && !nothing.enable);
    this._resetButton.hidden = this._dashboardButton.hidden = Boolean(nothing);
    const devices = nothing || !model ? [] : model.ordered;
    while (this._shown.length > devices.length) {
      this._shown.pop()?.node.remove();
    }
    while (this._shown.length < devices.length) {
      const card = new Card(
        this._trans,
        slot => this._actions.look(slot),
        this._trans.__('%1: open the dashboard', '%1')
      );
      this._shown.push(card);
      this._cards.append(card.node);
    }
    devices.forEach((device, place) =>
      this._shown[place]?.show(device, model!, this.options, colours)
    );
    // An exercise that is not written yet is no error; the notebook says kindly what it is.
    const error = nothing || model?.error?.kind === 'NotSolvedYet' ? null : model?.error;
    const said = error ? `${error.kind}: ${error.message}` : '';
    say(this._error, said);
    mark(this._error, 'title', said);
    this._list(
      this._ranks,
      this._trans.__('Collectives'),
      nothing || !model || !this.options.collectives
        ? []
        : model.collectives.map(one =>
            this._trans.__(
              '%1 ×%2 between %3 ranks: %4',
              one.operation,
              one.count,
              one.ranks.length,
              rate(one.busBandwidth)
            )
          )
    );
    this._list(
      this._advice,
      this._trans.__('Advice'),
      nothing || !model || !this.options.advice
        ? []
        : model.advice.map(one => (one.line ? `${one.text} (${one.line})` : one.text))
    );
  }

  protected onAfterShow(_: Message): void {
    this.show_();
  }

  protected onResize(_: Widget.ResizeMessage): void {
    this.show_();
  }

  private _list(place: HTMLElement, heading: string, lines: string[]): void {
    place.hidden = lines.length === 0;
    const told = lines.join('\n');
    if (place.dataset.told === told) {
      return;
    }
    place.dataset.told = told;
    place.replaceChildren(
      h('h3', { class: 'fg-Heading' }, heading),
      h('ul', { class: 'fg-List' }, ...lines.map(line => h('li', {}, line)))
    );
  }

  private _title = h('h2', { class: 'fg-Title' });
  private _busy = h('span', { class: 'fg-Busy' });
  private _spec = h('div', { class: 'fg-Spec' });
  private _why = h('p', { class: 'fg-Why' });
  private _remedy = h('p', { class: 'fg-Remedy' });
  private _error = h('div', { class: 'fg-Error', role: 'status', tabindex: 0 });
  private _cards = h('div', { class: 'fg-Cards' });
  private _ranks = h('section', { class: 'fg-Section' });
  private _advice = h('section', { class: 'fg-Section' });
  private _enableButton: HTMLButtonElement;
  private _chooseButton: HTMLButtonElement;
  private _resetButton: HTMLButtonElement;
  private _dashboardButton: HTMLButtonElement;
  private _shown: Card[] = [];
}
