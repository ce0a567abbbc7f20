import { h, mark, say } from '../dom';
import type { IChartData, ILine } from './chart';
import { before } from './series';

/** The curves of a chart by name and colour, each with its figure at a moment. */
export class Legend {
  constructor(
    private _words: (value: number) => string,
    private _colour: (name: string) => string,
    private _exact: (value: number) => string = () => ''
  ) {}

  readonly node = h('ul', { class: 'fg-Legend' });

  /** Of which moment the figures are. */
  readonly when = h('span', { class: 'fg-Legend-when' });

  /** The lines, in words. */
  get shown(): { colour: string; text: string }[] {
    return this._lines.map((line, place) => ({
      colour: this._colour(line.colour),
      text: this.node.children[place]?.textContent ?? line.name
    }));
  }

  /** Have these curves, without figures yet. */
  fill(lines: ILine[]): void {
    this._lines = lines;
    this.node.replaceChildren(
      ...lines.map(line => {
        const kind = line.dashed ? ' fg-mod-dashed' : line.outline ? ' fg-mod-outline' : '';
        const swatch = h('span', { class: `fg-Swatch${kind}` });
        swatch.style.setProperty('--fg-swatch', this._colour(line.colour));
        return h(
          'li',
          { 'data-line': line.name },
          swatch,
          h('span', { class: 'fg-Legend-name' }, line.name),
          ' ',
          h('span')
        );
      })
    );
  }

  /** Say the figures at a moment; those of the last one if there is none. */
  tell({ ns, lines }: IChartData, moment: number | null): void {
    const place = moment === null ? ns.length - 1 : before(ns, moment);
    lines.forEach((line, index) => {
      const value = place < 0 ? 0 : ((line.said ?? line.drawn)[place] ?? 0);
      const item = this.node.children[index]?.lastElementChild;
      if (item) {
        say(item, this._words(value));
        mark(item, 'title', this._exact(value));
      }
    });
  }

  private _lines: ILine[] = [];
}

/** A name of a key, with its colour; what is `hatched` is striped in the figure. */
export interface IEntry {
  colour: string;
  text: string;
  hatched?: boolean;
}

/** Show names with their colours in a list, and before them, of which moment their figures are. */
export function fillKey(list: HTMLElement, entries: IEntry[], when = ''): void {
  list.replaceChildren(
    ...(when ? [h('li', { class: 'fg-Legend-when' }, when)] : []),
    ...entries.map(({ colour, text, hatched }) => {
      const swatch = h('span', { class: hatched ? 'fg-Swatch fg-mod-hatched' : 'fg-Swatch' });
      swatch.style.setProperty('--fg-swatch', colour);
      return h('li', {}, swatch, text);
    })
  );
}
