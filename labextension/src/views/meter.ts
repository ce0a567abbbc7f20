/** A device's memory as a bar from 0 to all that the card has, and a key of what is drawn in it. */

import { h, mark, say } from '../dom';
import type { Model } from '../telemetry/model';
import type { IDevice } from '../telemetry/schema';
import { size } from '../units';
import { spoken } from './memory';
import { CATEGORIES } from './series';
import type { ITrans } from './trans';

export class Meter {
  constructor(private _trans: ITrans) {
    this._parts = CATEGORIES.map(name => {
      const part = h('i', { class: 'fg-Meter-part' });
      part.style.setProperty('--fg-swatch', `var(--fg-${name.replace('_', '-')})`);
      return part;
    });
    const entry = (kind: string, words: HTMLElement): HTMLElement =>
      h('li', {}, h('i', { class: `fg-Meter-swatch fg-Meter-${kind}` }), words);
    this.node = h(
      'div',
      { class: 'fg-Meter-place' },
      h(
        'span',
        { class: 'fg-Meter', role: 'presentation' },
        ...this._parts,
        this._kept,
        this._context,
        this._peak
      ),
      h(
        'ul',
        { class: 'fg-Meter-key' },
        entry('peak', this._words.peak),
        entry('kept', this._words.kept),
        entry('context', this._words.context)
      )
    );
  }

  readonly node: HTMLElement;

  show(device: IDevice, model: Model): void {
    const { memory } = device;
    const part = (bytes: number): string =>
      `${Math.min(100, (100 * bytes) / Math.max(1, memory.total))}%`;
    const rows = model.history.get(device.slot);
    const held: string[] = [];
    CATEGORIES.forEach((name, place) => {
      const column = model.columns.indexOf(name);
      const told = rows && rows.length > 0 && column >= 0 ? rows.at(-1, column) : NaN;
      // Before any row came, all that is held is "other".
      const bytes = Number.isNaN(told) ? (name === 'other' ? memory.allocated : 0) : told;
      this._parts[place]!.style.width = part(bytes);
      if (bytes > 0) {
        held.push(`${spoken(name, this._trans)} ${size(bytes)}`);
      }
    });
    const kept = Math.max(0, memory.reserved - memory.allocated);
    this._kept.style.width = part(kept);
    this._context.style.width = part(memory.context);
    this._peak.style.left = part(memory.peakAllocated);
    mark(this.node, 'title', held.join(', '));
    say(this._words.peak, this._trans.__('peak %1', size(memory.peakAllocated)));
    say(this._words.kept, this._trans.__('reserved, unused %1', size(kept)));
    say(this._words.context, this._trans.__('CUDA context %1', size(memory.context)));
  }

  private _parts: HTMLElement[];
  private _kept = h('i', { class: 'fg-Meter-kept' });
  private _context = h('i', { class: 'fg-Meter-context' });
  private _peak = h('i', { class: 'fg-Meter-peak' });
  private _words = { peak: h('span'), kept: h('span'), context: h('span') };
}
