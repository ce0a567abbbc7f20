/** A device's memory as a bar: by what it is for, what the allocator keeps besides, and the peak so far. */

import { h } from '../dom';
import type { Model } from '../telemetry/model';
import type { IDevice } from '../telemetry/schema';
import { CATEGORIES } from './series';

export class Meter {
  constructor() {
    this._parts = CATEGORIES.map(name => {
      const part = h('i', { class: 'fg-Meter-part' });
      part.style.setProperty('--fg-swatch', `var(--fg-${name.replace('_', '-')})`);
      return part;
    });
    this.node = h(
      'span',
      { class: 'fg-Meter', role: 'presentation' },
      ...this._parts,
      this._kept,
      this._peak
    );
  }

  readonly node: HTMLElement;

  show(device: IDevice, model: Model): void {
    const { memory } = device;
    const room = Math.max(1, memory.total - memory.context);
    const part = (bytes: number): string => `${Math.min(100, (100 * bytes) / room)}%`;
    const rows = model.history.get(device.slot);
    CATEGORIES.forEach((name, place) => {
      const column = model.columns.indexOf(name);
      const told = rows && rows.length > 0 && column >= 0 ? rows.at(-1, column) : NaN;
      // Before any row came, all that is held is "other".
      const bytes = Number.isNaN(told) ? (name === 'other' ? memory.allocated : 0) : told;
      this._parts[place]!.style.width = part(bytes);
    });
    this._kept.style.width = part(Math.max(0, memory.reserved - memory.allocated));
    this._peak.style.left = part(memory.peakAllocated);
  }

  private _parts: HTMLElement[];
  private _kept = h('i', { class: 'fg-Meter-kept' });
  private _peak = h('i', { class: 'fg-Meter-peak' });
}
