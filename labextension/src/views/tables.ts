import type { TranslationBundle } from '@jupyterlab/translation';

import { h, mark, say } from '../dom';
import { deviceName, Model } from '../telemetry/model';
import type { ITimeline } from '../telemetry/schema';
import { count, duration, exact, rate, size } from '../units';
import type { IMatrix } from './series';

/** A table in words: the caption, the heads, the rows. */
export interface IRows {
  heads: string[];
  rows: string[][];
  /** By row and column, how much of the most there is: shades the cell. */
  shades?: number[][];
  /** By row and column, what the hover says. */
  hovers?: string[][];
}

/** Shows rows; what has not changed is not touched. */
export class Table {
  constructor(caption: string, kind = '') {
    this.node = h(
      'div',
      { class: 'fg-Table-scroll', tabindex: 0, role: 'region', 'aria-label': caption },
      h(
        'table',
        { class: `fg-Table ${kind}` },
        h('caption', { class: 'fg-Spoken' }, caption),
        h('thead', {}, this._head),
        this._body
      )
    );
  }

  readonly node: HTMLElement;

  show(given: IRows): void {
    this.rows = given;
    fit(this._head, given.heads.length, () => h('th', { scope: 'col' }));
    given.heads.forEach((head, place) => say(this._head.children[place]!, head));
    fit(this._body, given.rows.length, () => h('tr'));
    given.rows.forEach((row, number) => {
      const line = this._body.children[number] as HTMLElement;
      fit(line, row.length, place => (place === 0 ? h('th', { scope: 'row' }) : h('td')));
      row.forEach((text, place) => {
        const cell = line.children[place] as HTMLElement;
        say(cell, text);
        mark(cell, 'title', given.hovers?.[number]?.[place] ?? '');
        const shade = (given.shades?.[number]?.[place] ?? 0).toFixed(2);
        if (cell.style.getPropertyValue('--fg-shade') !== shade) {
          cell.style.setProperty('--fg-shade', shade);
        }
      });
    });
  }

  rows: IRows = { heads: [], rows: [] };
  private _head = h('tr');
  private _body = h('tbody');
}

function fit(parent: HTMLElement, many: number, make: (place: number) => HTMLElement): void {
  while (parent.children.length > many) {
    parent.lastElementChild!.remove();
  }
  while (parent.children.length < many) {
    parent.append(make(parent.children.length));
  }
}

/** The matrix of copies, in words. */
export function matrixRows({ names, bytes }: IMatrix, trans: TranslationBundle): IRows {
  const most = Math.max(1, ...bytes.flat());
  // A root makes small flows visible beside large ones.
  const shade = (value: number): number => (value > 0 ? 0.08 + 0.55 * Math.sqrt(value / most) : 0);
  return {
    heads: [trans.__('from \\ to'), ...names],
    rows: bytes.map((row, from) => [
      names[from]!,
      ...row.map((value, to) => (from === to ? '' : size(value)))
    ]),
    shades: bytes.map(row => [0, ...row.map(shade)]),
    hovers: bytes.map((row, from) => [
      '',
      ...row.map((value, to) =>
        from === to ? '' : trans.__('%1 to %2: %3', names[from]!, names[to]!, exact(value))
      )
    ])
  };
}

/** What the ranks did together, by operation. */
export function collectiveRows(model: Model, trans: TranslationBundle): IRows {
  return {
    heads: [
      trans.__('operation'),
      trans.__('ranks'),
      trans.__('calls'),
      trans.__('bytes'),
      trans.__('time'),
      trans.__('bus bandwidth')
    ],
    rows: model.collectives.map(one => [
      one.operation,
      String(one.ranks.length),
      count(one.count),
      size(one.nbytes),
      duration(one.ns),
      rate(one.busBandwidth)
    ])
  };
}

/** What each rank did together with others, and how long it waited for them. */
export function rankRows(model: Model, trans: TranslationBundle): IRows {
  const devices = model.ordered.filter(device => device.counters.collectiveCount > 0);
  const most = Math.max(1, ...devices.map(device => device.counters.collectiveWaitNs));
  return {
    heads: [
      trans.__('device'),
      trans.__('collectives'),
      trans.__('bytes'),
      trans.__('waited for others')
    ],
    rows: devices.map(device => [
      deviceName(device),
      count(device.counters.collectiveCount),
      size(device.counters.collectiveBytes),
      duration(device.counters.collectiveWaitNs)
    ]),
    shades: devices.map(device => [0, 0, 0, device.counters.collectiveWaitNs / most])
  };
}

/** The kernels that took most of a timeline. */
export function topRows(timeline: ITimeline, trans: TranslationBundle): IRows {
  const whole = Math.max(1, timeline.ended - timeline.began);
  return {
    heads: [
      trans.__('kernel'),
      trans.__('device'),
      trans.__('calls'),
      trans.__('time'),
      trans.__('of the window')
    ],
    rows: timeline.top.map(one => [
      one.kernel,
      `cuda:${one.device}`,
      count(one.calls),
      duration(one.ns),
      `${((100 * one.ns) / whole).toFixed(1)} %`
    ])
  };
}
