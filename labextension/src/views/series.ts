/** Figures of a model as curves: pure, so that they can be tested without a page. */

import { deviceName, Model } from '../telemetry/model';
import type { IDevice } from '../telemetry/schema';
import type { ICurves as ISparkline } from './sparkline';

/** From what stays to what comes and goes, so that the figure is calm below. */
export const CATEGORIES = [
  'parameters',
  'optimizer_state',
  'workspace',
  'gradients',
  'activations',
  'inputs',
  'other'
] as const;

/** Points of a curve when several devices are drawn: more than a screen is wide gains nothing. */
export const BUCKETS = 900;

/** Curves over the same moments, ns. */
export interface ICurves {
  ns: number[];
  /** By name, a figure for each moment. */
  rows: Map<string, (number | null)[]>;
}

/** What a device's memory was for, over simulated time, bytes; and what its allocator had reserved. */
export function categories(model: Model, slot: number): ICurves {
  const rows = new Map<string, number[]>();
  const ring = model.history.get(slot);
  const now = model.columns.indexOf('now_ns');
  const columns = model.columns.map((name, place) => ({ name, place }));
  const known = new Set<string>([...CATEGORIES, 'reserved', 'now_ns']);
  for (const name of [...CATEGORIES, 'reserved']) {
    const column = model.columns.indexOf(name);
    rows.set(name, ring && column >= 0 ? ring.column(column) : zeros(ring?.length ?? 0));
  }
  // What a newer kernel knows of, and this extension does not, is something too.
  const other = rows.get('other')!;
  for (const { place } of columns.filter(column => !known.has(column.name))) {
    ring?.column(place).forEach((value, row) => (other[row] = (other[row] ?? 0) + value));
  }
  return { ns: ring && now >= 0 ? ring.column(now) : [], rows };
}

/** The curves since a moment, with the values that they had then. */
export function after({ ns, rows }: ICurves, since: number): ICurves {
  if (since <= (ns[0] ?? Infinity)) {
    return { ns, rows };
  }
  const first = before(ns, since);
  return {
    ns: [since, ...ns.slice(first + 1)],
    rows: new Map([...rows].map(([name, row]) => [name, row.slice(first)]))
  };
}

/** The curves until a moment, with the values that they have now. */
export function until({ ns, rows }: ICurves, moment: number): ICurves {
  return ns.length === 0 || ns[ns.length - 1]! >= moment
    ? { ns, rows }
    : {
        ns: [...ns, moment],
        rows: new Map([...rows].map(([name, row]) => [name, [...row, row[row.length - 1]!]]))
      };
}

/** Lay curves on each other: the last one holds the sum. */
export function stacked(curves: number[][]): number[][] {
  let below: number[] = [];
  return curves.map(curve => {
    below = curve.map((value, place) => value + (below[place] ?? 0));
    return below;
  });
}

/** Bytes that each device held, over the same moments: of each stretch the most, because a peak is what matters. */
export function held(model: Model, devices: IDevice[], buckets = BUCKETS): ICurves {
  const all = devices.map(device => ({ device, ...model.held(device.slot) }));
  const first = Math.min(...all.map(one => one.ns[0] ?? Infinity));
  const last = Math.max(model.doneNs, ...all.map(one => one.ns[one.ns.length - 1] ?? -Infinity));
  const rows = new Map<string, (number | null)[]>();
  if (!Number.isFinite(first)) {
    return { ns: [], rows };
  }
  const ns =
    union(
      all.map(one => one.ns),
      buckets
    ) ??
    Array.from({ length: buckets }, (_, place) => first + ((last - first) * place) / (buckets - 1));
  for (const one of all) {
    // At the end stands what is held now, and not the most since the moment before.
    const now = one.bytes[one.bytes.length - 1] ?? null;
    rows.set(deviceName(one.device), [...steps(one.ns, one.bytes, ns), now]);
  }
  return { ns: [...ns, last], rows };
}

/** All moments that there are, in order; null if they are more than so many. */
function union(lists: number[][], most: number): number[] | null {
  if (lists.some(list => list.length > most)) {
    return null;
  }
  const all = new Float64Array(lists.reduce((sum, list) => sum + list.length, 0));
  let filled = 0;
  for (const list of lists) {
    all.set(list, filled);
    filled += list.length;
  }
  all.sort();
  const found: number[] = [];
  for (const moment of all) {
    if (moment !== found[found.length - 1]) {
      if (found.length === most) {
        return null;
      }
      found.push(moment);
    }
  }
  return found;
}

/** A curve of steps, read at other moments: the most since the moment before; null before it begins. */
export function steps(ns: number[], values: number[], at: number[]): (number | null)[] {
  let place = 0;
  let level: number | null = null;
  return at.map(moment => {
    let most = level;
    while (place < ns.length && ns[place]! <= moment) {
      level = values[place]!;
      most = Math.max(most ?? 0, level);
      place += 1;
    }
    return most;
  });
}

/** Stretches of utilisation in a run, at most: what is measured over less says little. */
export const STRETCHES = 60;

/**
 * Utilisation of devices over simulated time: of each, the part of a stretch in which a kernel ran. A sample has the time
 * at its end; here its stretch begins where the one before ended, and short stretches are put together.
 */
export function utilisation(model: Model, devices: IDevice[]): ICurves {
  const rows = new Map<string, (number | null)[]>();
  const rings = devices.map(device => model.samples.get(device.slot));
  const longest = rings.reduce(
    (best, ring) => ((ring?.length ?? 0) > (best?.length ?? 0) ? ring : best),
    rings[0]
  );
  const ns: number[] = [];
  const places: number[] = [];
  (longest?.column(1) ?? []).forEach((moment, place) => {
    // Of messages at the same moment the last counts.
    if (ns.length > 0 && moment <= ns[ns.length - 1]!) {
      places[places.length - 1] = place;
    } else {
      ns.push(moment);
      places.push(place);
    }
  });
  // Of the oldest sample that is kept the beginning is known only if it is the first one.
  const begin = Math.min(longest && longest.length < longest.capacity ? 0 : Infinity, ns[0] ?? 0);
  const kept = ends(ns, begin);
  devices.forEach((device, index) => {
    const ring = rings[index];
    const lag = (longest?.length ?? 0) - (ring?.length ?? 0);
    const parts = places.map(place => (ring && place >= lag ? ring.at(place - lag, 0) : null));
    const means = kept.map((last, order) =>
      mean(ns, parts, (kept[order - 1] ?? -1) + 1, last, begin)
    );
    rows.set(deviceName(device), [...means, ...means.slice(-1)]);
  });
  return { ns: ns.length > 0 ? [begin, ...kept.map(place => ns[place]!)] : [], rows };
}

/** The places of moments at which stretches end that are long enough; the last moment is one of them. */
function ends(ns: number[], begin: number): number[] {
  const least = ((ns[ns.length - 1] ?? 0) - begin) / STRETCHES;
  const found: number[] = [];
  let from = begin;
  ns.forEach((moment, place) => {
    const last = place === ns.length - 1;
    if (moment - from >= least || last) {
      if (last && moment - from < least) {
        found.pop(); // too short to stand alone
      }
      found.push(place);
      from = moment;
    }
  });
  return found;
}

/** The mean of a part over the stretches from one place to another, by their length; null if it is known of none. */
function mean(
  ns: number[],
  parts: (number | null)[],
  first: number,
  last: number,
  begin: number
): number | null {
  if (first === last) {
    return parts[first] ?? null;
  }
  let [sum, length] = [0, 0];
  for (let place = first; place <= last; place++) {
    const part = parts[place];
    if (part !== null && part !== undefined) {
      const stretch = ns[place]! - (ns[place - 1] ?? begin);
      sum += part * stretch;
      length += stretch;
    }
  }
  return length > 0 ? sum / length : null;
}

/** How busy a device was at last, and over which stretch of simulated time, ns. */
export function lately(model: Model, device: IDevice): { part: number; ns: number } {
  const { ns, rows } = utilisation(model, [device]);
  const parts = rows.get(deviceName(device)) ?? [];
  return {
    part: parts[parts.length - 1] ?? model.utilisation.get(device.slot) ?? 0,
    ns: (ns[ns.length - 1] ?? 0) - (ns[ns.length - 2] ?? 0)
  };
}

/** A device's memory and utilisation for its card: over the same time, until now. */
export function spark(model: Model, device: IDevice): Omit<ISparkline, 'words'> {
  const { ns, bytes } = model.held(device.slot);
  const busy = utilisation(model, [device]);
  const parts = (busy.rows.get(deviceName(device)) ?? []).map(part => part ?? 0);
  const begin = ns[0] ?? busy.ns[0] ?? 0;
  const end = Math.max(begin + 1, model.doneNs, ns[ns.length - 1] ?? 0);
  const top = Math.max(1, device.memory.allocated, ...bytes);
  return { begin, end, x: ns, y: bytes, top, at: busy.ns, parts };
}

/** The place of the last moment that is not after this one; -1 if all are. */
export function before(ns: ArrayLike<number>, moment: number): number {
  let low = 0;
  let high = ns.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (ns[middle]! <= moment) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low - 1;
}

/** Who sent how much to whom, bytes: row by row, the host first. */
export interface IMatrix {
  names: string[];
  bytes: number[][];
}

/** All copies so far. Between two places of the same row and column there are none. */
export function transfers(model: Model): IMatrix {
  const devices = model.ordered;
  const names = ['host', ...devices.map(deviceName)];
  const bytes = names.map(() => zeros(names.length));
  devices.forEach((device, place) => {
    bytes[0]![place + 1] = device.counters.h2dBytes;
    bytes[place + 1]![0] = device.counters.d2hBytes;
    for (const [slot, sent] of device.counters.sentTo) {
      const target = devices.findIndex(other => other.slot === slot);
      if (target >= 0) {
        bytes[place + 1]![target + 1] = sent;
      }
    }
  });
  return { names, bytes };
}

function zeros(length: number): number[] {
  return new Array<number>(length).fill(0);
}
