import type { TranslationBundle } from '@jupyterlab/translation';
import { Widget } from '@lumino/widgets';

import { h, mark, say } from './dom';
import type { Follower } from './kernel/follow';
import { share } from './units';

/** The status bar's `A100 ×2 · 3.10 / 158.50 GiB`; nothing where there is no machine. */
export class StatusItem extends Widget {
  constructor(
    private _follower: Follower,
    private _trans: TranslationBundle,
    open: () => void
  ) {
    super();
    this.addClass('fg-Status');
    this._button = h('button', { class: 'fg-Status-button', type: 'button', onclick: open });
    this.node.append(this._button);
  }

  /** Show how things are now. */
  show_(): void {
    const { link } = this._follower;
    const live = link?.standing === 'live';
    this.node.classList.toggle('fg-mod-empty', !live);
    if (!live || !link) {
      say(this._button, '');
      return;
    }
    const { model } = link;
    const { allocated, total } = model.memory;
    const warn = model.nearlyFull;
    say(this._button, `${model.summary} · ${share(allocated, total)}`);
    this.node.classList.toggle('fg-mod-full', warn);
    mark(
      this._button,
      'title',
      warn
        ? this._trans.__('A GPU of this notebook is nearly full; click to see which')
        : this._trans.__('The memory that tensors hold on this notebook’s GPUs; click for details')
    );
  }

  private _button: HTMLButtonElement;
}
