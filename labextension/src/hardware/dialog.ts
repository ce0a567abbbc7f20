import { Dialog } from '@jupyterlab/apputils';
import type { TranslationBundle } from '@jupyterlab/translation';
import { Widget } from '@lumino/widgets';

import { h, say } from '../dom';
import type { IProfile } from '../kernel/probe';
import { size } from '../units';
import { IChoice, line } from './cell';
import { matching } from './search';

/** The body of the dialog: a list to search, how many, how much memory, and the line that comes of it. */
class Body extends Widget implements Dialog.IBodyWidget<IChoice> {
  constructor(
    private _profiles: IProfile[],
    trans: TranslationBundle
  ) {
    super();
    this.addClass('fg-Hardware');
    this._search = h('input', {
      class: 'jp-mod-styled fg-Input',
      type: 'search',
      placeholder: trans.__('a100, ampere, 24 GiB …'),
      'aria-label': trans.__('Search the GPUs'),
      'aria-controls': 'fg-hardware-list',
      oninput: () => this._fill(),
      onkeydown: event => this._key(event as KeyboardEvent)
    });
    this._list = h('select', {
      class: 'fg-Hardware-list',
      id: 'fg-hardware-list',
      size: 10,
      'aria-label': trans.__('GPUs and machines'),
      onchange: () => this._chosen()
    });
    this._count = h('input', {
      class: 'jp-mod-styled fg-Input',
      type: 'number',
      min: 1,
      max: 16,
      value: 1,
      oninput: () => this._preview()
    });
    this._memory = h('input', {
      class: 'jp-mod-styled fg-Input',
      type: 'text',
      placeholder: trans.__('all of it; or 2GiB'),
      pattern: '\\s*(\\d+(\\.\\d+)?\\s*[KMGT]i?B)?\\s*',
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
        trans.__('This cell is put into the notebook and run:')
      ),
      this._line
    );
    this._fill();
  }

  getValue(): IChoice {
    const profile = this._profiles.find(one => one.id === this._list.value);
    const many = Math.min(16, Math.max(1, Math.round(Number(this._count.value) || 1)));
    const id = profile?.id ?? 'a100';
    return {
      spec: many > 1 && profile?.cards === 1 ? `${id}:${many}` : id,
      memory: this._memory.validity.valid ? this._memory.value.replace(/\s+/g, '') : ''
    };
  }

  protected onAfterAttach(): void {
    this._search.focus();
  }

  private _fill(): void {
    const before = this._list.value || 'a100';
    this._list.replaceChildren(
      ...matching(this._profiles, this._search.value).map(one =>
        h(
          'option',
          { value: one.id },
          [one.id, one.architecture, one.cards > 1 ? `${one.cards} GPUs` : '', size(one.memory)]
            .filter(word => word !== '')
            .join(' · ')
        )
      )
    );
    this._list.value = before;
    if (this._list.selectedIndex < 0) {
      this._list.selectedIndex = 0;
    }
    this._list.selectedOptions[0]?.scrollIntoView?.({ block: 'nearest' });
    this._chosen();
  }

  private _chosen(): void {
    const profile = this._profiles.find(one => one.id === this._list.value);
    this._count.disabled = (profile?.cards ?? 1) > 1;
    this._preview();
  }

  private _preview(): void {
    say(this._line, line(this.getValue()));
  }

  /** The arrows move in the list while one types. */
  private _key(event: KeyboardEvent): void {
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (by !== undefined) {
      event.preventDefault();
      const last = this._list.options.length - 1;
      this._list.selectedIndex = Math.min(last, Math.max(0, this._list.selectedIndex + by));
      this._chosen();
    }
  }

  private _search: HTMLInputElement;
  private _list: HTMLSelectElement;
  private _count: HTMLInputElement;
  private _memory: HTMLInputElement;
  private _line: HTMLElement;
}

/** Let the student choose; null when they think better of it. */
export async function choose(
  profiles: IProfile[],
  trans: TranslationBundle
): Promise<IChoice | null> {
  const dialog = new Dialog<IChoice>({
    title: trans.__('Choose GPUs'),
    body: new Body(profiles, trans),
    buttons: [
      Dialog.cancelButton({ label: trans.__('Cancel') }),
      Dialog.okButton({ label: trans.__('Enable') })
    ]
  });
  const { button, value } = await dialog.launch();
  return button.accept ? value : null;
}
