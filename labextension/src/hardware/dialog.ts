import { Dialog } from '@jupyterlab/apputils';
import type { TranslationBundle } from '@jupyterlab/translation';
import { Widget } from '@lumino/widgets';

import { h, say } from '../dom';
import type { IProfile } from '../kernel/probe';
import { capacity } from '../units';
import { IChoice, line } from './cell';
import { matching } from './search';

/** The most that a machine has; fakegpu_lab/hardware/catalogue/spec.py says why. */
const MOST = 64;

/** The body of the dialog: a list to search, how many, how much memory, and the line that comes of it. */
class Body extends Widget implements Dialog.IBodyWidget<IChoice> {
  constructor(
    private _profiles: IProfile[],
    private _trans: TranslationBundle
  ) {
    super();
    const trans = this._trans;
    this.addClass('fg-Hardware');
    this._search = h('input', {
      class: 'jp-mod-styled fg-Input',
      type: 'search',
      placeholder: trans.__('a100, ampere, 24 GiB …'),
      'aria-label': trans.__('Search the GPUs'),
      role: 'combobox',
      'aria-expanded': 'true',
      'aria-controls': 'fg-hardware-list',
      oninput: () => this._fill(),
      onkeydown: event => this._key(event as KeyboardEvent)
    });
    this._list = h('ul', {
      class: 'fg-Hardware-list',
      id: 'fg-hardware-list',
      role: 'listbox',
      tabindex: 0,
      'aria-label': trans.__('GPUs and machines'),
      onkeydown: event => this._key(event as KeyboardEvent),
      onclick: event => {
        const row = (event.target as Element).closest<HTMLElement>('[role=option]');
        this._pick(row?.dataset.id ?? this._picked);
      }
    });
    this._count = h('input', {
      class: 'jp-mod-styled fg-Input',
      type: 'number',
      min: 1,
      max: MOST,
      value: 1,
      oninput: () => this._preview()
    });
    this._memory = h('input', {
      class: 'jp-mod-styled fg-Input',
      type: 'text',
      placeholder: trans.__('all of it, or 2GiB'),
      pattern: '\\s*(\\d+|\\d+(\\.\\d+)?\\s*([KkMmGgTt][Ii]?)?[Bb])?\\s*',
      oninput: () => this._preview()
    });
    this._line = h('code', { class: 'fg-Hardware-line', 'aria-live': 'polite' });
    this.node.append(
      this._search,
      this._list,
      h(
        'div',
        { class: 'fg-Hardware-row' },
        h('label', {}, trans.__('How many'), this._count),
        h('label', {}, trans.__('Memory of each'), this._memory)
      ),
      h(
        'div',
        { class: 'fg-Hardware-says' },
        trans.__('This cell will be added to the notebook and run:')
      ),
      this._line
    );
    this._fill();
  }

  getValue(): IChoice {
    const profile = this._profiles.find(one => one.id === this._picked);
    const many = Math.min(MOST, Math.max(1, Math.round(Number(this._count.value) || 1)));
    return {
      spec: many > 1 && profile?.cards === 1 ? `${this._picked}:${many}` : this._picked,
      memory: this._memory.value.replace(/\s+/g, '')
    };
  }

  /** List what fits the words; what was picked stays so if it is among them. */
  private _fill(): void {
    this._fitting = matching(this._profiles, this._search.value);
    this._list.replaceChildren(
      ...this._fitting.map(one =>
        h(
          'li',
          { role: 'option', id: `fg-hardware-${one.id}`, 'data-id': one.id },
          h('span', { class: 'fg-Hardware-id' }, one.id),
          h('span', {}, one.cards > 1 ? this._trans.__('%1 GPUs', one.cards) : one.architecture),
          h('span', { class: 'fg-Hardware-size' }, capacity(one.total ?? one.memory))
        )
      )
    );
    const kept = this._fitting.some(one => one.id === this._picked);
    this._pick(kept ? this._picked : (this._fitting[0]?.id ?? this._picked));
  }

  private _pick(id: string): void {
    this._picked = id;
    for (const row of this._list.querySelectorAll<HTMLElement>('[role=option]')) {
      const picked = row.dataset.id === id;
      row.setAttribute('aria-selected', String(picked));
      if (picked) {
        row.scrollIntoView({ block: 'nearest' });
        this._list.setAttribute('aria-activedescendant', row.id);
        this._search.setAttribute('aria-activedescendant', row.id);
      }
    }
    this._count.disabled = (this._profiles.find(one => one.id === id)?.cards ?? 1) > 1;
    this._preview();
  }

  private _preview(): void {
    const { valid } = this._memory.validity;
    const enable = this.node.closest('.jp-Dialog')?.querySelector('button.jp-mod-accept');
    enable?.toggleAttribute('disabled', !valid);
    say(
      this._line,
      valid
        ? line(this.getValue())
        : this._trans.__('%1 is not an amount of memory: write 2GiB or 512MiB.', this._memory.value)
    );
  }

  /** The arrows move in the list, also while one types. */
  private _key(event: KeyboardEvent): void {
    const by = { ArrowDown: 1, ArrowUp: -1, PageDown: 8, PageUp: -8 }[event.key];
    if (by !== undefined) {
      event.preventDefault();
      const place = this._fitting.findIndex(one => one.id === this._picked) + by;
      const last = this._fitting.length - 1;
      this._pick(this._fitting[Math.min(last, Math.max(0, place))]?.id ?? this._picked);
    }
  }

  private _search: HTMLInputElement;
  private _list: HTMLUListElement;
  private _count: HTMLInputElement;
  private _memory: HTMLInputElement;
  private _line: HTMLElement;
  private _fitting: IProfile[] = [];
  private _picked = 'a100';
}

/** Let the student choose; null when they think better of it. */
export async function choose(
  profiles: IProfile[],
  trans: TranslationBundle
): Promise<IChoice | null> {
  const dialog = new Dialog<IChoice>({
    title: trans.__('Choose GPUs'),
    body: new Body(profiles, trans),
    focusNodeSelector: 'input[type=search]',
    buttons: [
      Dialog.cancelButton({ label: trans.__('Cancel') }),
      Dialog.okButton({ label: trans.__('Enable') })
    ]
  });
  const { button, value } = await dialog.launch();
  return button.accept ? value : null;
}
