import { h, mark, say } from '../dom';
import { deviceName, Model } from '../telemetry/model';
import type { IAllocations, ICollective, IDevice, ITimeline } from '../telemetry/schema';
import { count, duration, exact, rate, size } from '../units';
import { spoken } from './memory';
import { variable } from './colours';
import type { IMatrix } from './series';
import type { ITrans } from './trans';

/** A table in words: the caption, the heads, the rows. */
export interface IRows {
  heads: string[];
  rows: string[][];
  /** By row and column, how much of the most there is: shades the cell. */
  shades?: number[][];
  /** By row and column, what the hover says. */
  hovers?: string[][];
  /** By row, the variable with its colour; empty for none. */
  colours?: string[];
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
      const colour = given.colours?.[number];
      line.classList.toggle('fg-mod-coloured', Boolean(colour));
      line.style.setProperty('--fg-swatch', colour ? `var(${colour})` : '');
      row.forEach((text, place) => {
        const cell = line.children[place] as HTMLElement;
        say(cell, text);
        mark(cell, 'title', given.hovers?.[number]?.[place] ?? '');
        mark(cell, 'data-head', place === 0 ? '' : (given.heads[place] ?? ''));
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
export function matrixRows({ names, bytes }: IMatrix, trans: ITrans): IRows {
  const most = Math.max(1, ...bytes.flat());
  // A root makes small flows visible beside large ones.
  const shade = (value: number): number => (value > 0 ? 0.08 + 0.55 * Math.sqrt(value / most) : 0);
  return {
    heads: ['', ...names.map(name => trans.__('to %1', name))],
    rows: bytes.map((row, from) => [
      trans.__('from %1', names[from]),
      ...row.map((value, to) => (from === to ? '' : size(value)))
    ]),
    shades: bytes.map(row => [0, ...row.map(shade)]),
    hovers: bytes.map((row, from) => [
      '',
      ...row.map((value, to) =>
        from === to ? '' : trans.__('%1 to %2: %3', names[from], names[to], exact(value))
      )
    ])
  };
}

/** What the ranks did together, by operation. */
export function collectiveRows(model: Model, trans: ITrans): IRows {
  return {
    heads: [
      trans.__('operation'),
      trans.__('ranks'),
      trans.__('calls'),
      trans.__('bytes'),
      trans.__('time'),
      trans.__('bus bandwidth'),
      trans.__('longest wait')
    ],
    rows: model.collectives.map(one => [
      one.operation,
      String(one.ranks.length),
      count(one.count),
      size(one.nbytes),
      duration(one.ns),
      rate(one.busBandwidth),
      waited(one, trans)
    ]),
    hovers: model.collectives.map(one => ['', '', '', exact(one.nbytes)])
  };
}

/** Who waited longest for whom. */
function waited(one: ICollective, trans: ITrans): string {
  const waits = [...one.waited].sort(([, some], [, others]) => others - some);
  const [longest, last] = [waits[0], waits[waits.length - 1]];
  return longest && last && longest[1] > 0 && longest[0] !== last[0]
    ? trans.__('cuda:%1 waited %2, cuda:%3 came last', longest[0], duration(longest[1]), last[0])
    : trans.__('none');
}

/** The copies of each GPU, by direction. */
export function copyRows(devices: IDevice[], trans: ITrans): IRows {
  const rows: [string, number, number, number][] = devices.flatMap(device => {
    const { counters } = device;
    const name = deviceName(device);
    const found: [string, number, number, number][] = [
      [`host → ${name}`, counters.h2dCount, counters.h2dBytes, counters.h2dNs],
      [`${name} → host`, counters.d2hCount, counters.d2hBytes, counters.d2hNs],
      [
        trans.__('%1 → other GPUs', name),
        counters.p2pSentCount,
        counters.p2pSentBytes,
        counters.p2pSentNs
      ]
    ];
    return found.filter(([, copies]) => copies > 0);
  });
  return {
    heads: [
      trans.__('direction'),
      trans.__('copies'),
      trans.__('bytes'),
      trans.__('time'),
      trans.__('mean rate'),
      trans.__('mean size')
    ],
    rows: rows.map(([name, copies, bytes, ns]) => [
      name,
      count(copies),
      size(bytes),
      duration(ns),
      ns > 0 ? rate((bytes / ns) * 1e9) : '',
      size(Math.round(bytes / copies))
    ]),
    hovers: rows.map(([, , bytes]) => ['', '', exact(bytes)])
  };
}

/** What each rank did together with others, and how long it waited for them. */
export function rankRows(model: Model, trans: ITrans): IRows {
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

/** What made the peak of a window: alike tensors together, the largest first. */
export function peakRows({ groups, peak }: IAllocations, trans: ITrans): IRows {
  const share = (nbytes: number): number => nbytes / Math.max(1, peak);
  return {
    heads: [
      trans.__('category'),
      trans.__('memory'),
      trans.__('share'),
      trans.__('tensors'),
      trans.__('shape and op'),
      trans.__('line')
    ],
    rows: groups.map(one => [
      one.category ? spoken(one.category, trans) : trans.__('the rest'),
      size(one.nbytes),
      `${(100 * share(one.nbytes)).toFixed(1)}%`,
      count(one.tensors),
      [one.shape, one.op].filter(Boolean).join(', '),
      one.line
    ]),
    shades: groups.map(one => [0, 0, share(one.nbytes)]),
    hovers: groups.map(one => ['', exact(one.nbytes)]),
    colours: groups.map(one => (one.category ? variable(one.category) : ''))
  };
}

/** The ops that took most of a timeline, and their share of the time in which the GPUs were free for it. */
export function topRows(timeline: ITimeline, trans: ITrans): IRows {
  const whole = Math.max(1, timeline.ended - timeline.free);
  return {
    heads: [
      trans.__('op'),
      trans.__('device'),
      trans.__('kernels'),
      trans.__('time'),
      trans.__('share of time')
    ],
    rows: timeline.top.map(one => [
      one.kernel,
      one.device < 0 ? '' : `cuda:${one.device}`,
      count(one.calls),
      duration(one.ns),
      `${((100 * one.ns) / whole).toFixed(1)}%`
    ])
  };
}
