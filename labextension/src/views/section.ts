import { h } from '../dom';

/** The parts of what is shown of a machine, by their ids. */
export type PartId =
  'memory' | 'allocations' | 'busy' | 'timeline' | 'transfers' | 'collectives' | 'advice';

/** All parts, in their order. */
export const PARTS: PartId[] = [
  'memory',
  'allocations',
  'busy',
  'timeline',
  'transfers',
  'collectives',
  'advice'
];

/** A part: a heading, a button that saves its figures, what it shows or why that is nothing. */
export class Section {
  constructor(
    readonly id: PartId,
    heading: string,
    saves: { label: string; title: string; save: () => void },
    ...shown: HTMLElement[]
  ) {
    this.heading = h('h3', { class: 'fg-Section-title' }, heading);
    this._save = h(
      'button',
      {
        class: 'fg-Small',
        type: 'button',
        title: saves.title,
        'aria-label': saves.title,
        onclick: () => saves.save()
      },
      saves.label
    );
    this._shown = h('div', { class: 'fg-Section-body' }, ...shown);
    this.node = h(
      'section',
      { class: 'fg-Part', 'data-part': id, 'aria-label': heading },
      h('header', { class: 'fg-Section-head' }, this.heading, this._note, this._save),
      this._why,
      this._shown
    );
  }

  readonly node: HTMLElement;
  readonly heading: HTMLElement;

  /** Whether its figures can be seen: it is not left out, and there is something to show. */
  get shows(): boolean {
    return !this.node.hidden && !this._shown.hidden;
  }

  /** Whether it is the only part that is shown, and something else says which it is. */
  set alone(alone: boolean) {
    this.heading.classList.toggle('fg-Spoken', alone);
  }

  /** What stands beside the heading. */
  set note(text: string) {
    if (this._note.textContent !== text) {
      this._note.textContent = text;
      this._note.title = text;
    }
  }

  /** Why there is nothing to show; empty when there is. */
  set why(text: string) {
    if (this._why.textContent !== text) {
      this._why.textContent = text;
    }
    this._why.hidden = text === '';
    this._shown.hidden = text !== '';
    this._save.hidden = text !== '';
  }

  private _note = h('span', { class: 'fg-Section-note' });
  private _why = h('p', { class: 'fg-Section-why' });
  private _shown: HTMLElement;
  private _save: HTMLElement;
}
