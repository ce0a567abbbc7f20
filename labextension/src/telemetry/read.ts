/** Reads what the kernel tells, field by field; see schema.ts. */

import {
  Fault,
  IAdvice,
  IAllocations,
  ICollective,
  IDevice,
  ILastError,
  IMessage,
  IRegion,
  ITimeline,
  VERSION
} from './schema';

class Unreadable extends Error {}

type Fields = Record<string, unknown>;

function fields(value: unknown, where: string): Fields {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw new Unreadable(where);
  }
  return value as Fields;
}

function list(value: unknown, where: string): unknown[] {
  if (!Array.isArray(value)) {
    throw new Unreadable(where);
  }
  return value;
}

function number(value: unknown, where: string): number {
  if (typeof value !== 'number' || !Number.isFinite(value)) {
    throw new Unreadable(where);
  }
  return value;
}

function text(value: unknown, where: string): string {
  if (typeof value !== 'string') {
    throw new Unreadable(where);
  }
  return value;
}

/** A field that may be missing, because it came later or went: then `otherwise`. */
function maybe<T>(value: unknown, read: (value: unknown) => T, otherwise: T): T {
  return value === undefined || value === null ? otherwise : read(value);
}

const numberOr = (value: unknown, where: string, otherwise = 0): number =>
  maybe(value, given => number(given, where), otherwise);

const textOr = (value: unknown, where: string, otherwise = ''): string =>
  maybe(value, given => text(given, where), otherwise);

function bySlot<T>(
  value: unknown,
  where: string,
  read: (value: unknown, where: string) => T
): Map<number, T> {
  const found = new Map<number, T>();
  for (const [slot, given] of Object.entries(fields(value ?? {}, where))) {
    found.set(number(Number(slot), where), read(given, `${where}.${slot}`));
  }
  return found;
}

function device(value: unknown, where: string): IDevice {
  const found = fields(value, where);
  const memory = fields(found.memory, `${where}.memory`);
  const counters = fields(found.counters ?? {}, `${where}.counters`);
  const time = fields(found.time ?? {}, `${where}.time`);
  const held = (name: string): number => number(memory[name], `${where}.memory.${name}`);
  const counted = (name: string): number => numberOr(counters[name], `${where}.counters.${name}`);
  const slot = number(found.slot, `${where}.slot`);
  return {
    slot,
    index: numberOr(found.index, `${where}.index`, slot),
    id: textOr(found.id, `${where}.id`),
    name: text(found.name, `${where}.name`),
    memory: {
      total: held('total'),
      free: held('free'),
      allocated: held('allocated'),
      reserved: held('reserved'),
      peakAllocated: numberOr(memory.peak_allocated, `${where}.memory.peak_allocated`),
      context: numberOr(memory.context, `${where}.memory.context`),
      ooms: numberOr(memory.ooms, `${where}.memory.ooms`)
    },
    counters: {
      kernels: counted('kernels'),
      h2dBytes: counted('h2d_bytes'),
      h2dCount: counted('h2d_count'),
      d2hBytes: counted('d2h_bytes'),
      d2hCount: counted('d2h_count'),
      p2pSentBytes: counted('p2p_sent_bytes'),
      p2pSentCount: counted('p2p_sent_count'),
      p2pReceivedBytes: counted('p2p_received_bytes'),
      collectiveCount: counted('collective_count'),
      collectiveBytes: counted('collective_bytes'),
      collectiveWaitNs: counted('collective_wait_ns'),
      h2dNs: counted('h2d_ns'),
      d2hNs: counted('d2h_ns'),
      p2pSentNs: counted('p2p_sent_ns'),
      sentTo: bySlot(counters.p2p_sent_to, `${where}.counters.p2p_sent_to`, number)
    },
    busyNs: numberOr(time.busy_ns, `${where}.time.busy_ns`),
    doneNs: numberOr(time.done_ns, `${where}.time.done_ns`)
  };
}

function timeline(value: unknown): ITimeline {
  const found = fields(value, 'timeline');
  return {
    number: number(found.number, 'timeline.number'),
    title: textOr(found.title, 'timeline.title'),
    began: number(found.began_ns, 'timeline.began_ns'),
    ended: number(found.ended_ns, 'timeline.ended_ns'),
    free: number(found.free_ns ?? found.began_ns, 'timeline.free_ns'),
    lanes: list(found.lanes, 'timeline.lanes').map(one => {
      const lane = fields(one, 'timeline.lanes');
      return {
        label: text(lane.label, 'timeline.lanes.label'),
        bars: list(lane.bars, 'timeline.lanes.bars').map(given => {
          const [start, end, kind, label] = list(given, 'timeline.lanes.bars');
          return {
            start: number(start, 'timeline.lanes.bars'),
            end: number(end, 'timeline.lanes.bars'),
            kind: text(kind, 'timeline.lanes.bars'),
            label: text(label, 'timeline.lanes.bars')
          };
        })
      };
    }),
    top: list(found.top ?? [], 'timeline.top').map(one => {
      const [device, kernel, calls, ns] = list(one, 'timeline.top');
      return {
        device: number(device, 'timeline.top'),
        kernel: text(kernel, 'timeline.top'),
        calls: number(calls, 'timeline.top'),
        ns: number(ns, 'timeline.top')
      };
    })
  };
}

function allocations(value: unknown): IAllocations {
  const where = 'allocations';
  const found = fields(value, where);
  const counted = (name: string): number => number(found[name], `${where}.${name}`);
  const lines = list(found.lines, `${where}.lines`).map(one => text(one, `${where}.lines`));
  const regions = (name: string): IRegion[] =>
    list(found[name] ?? [], `${where}.${name}`).map(one => {
      const [called, first, last] = list(one, `${where}.${name}`);
      return [text(called, name), number(first, name), number(last, name)];
    });
  return {
    slot: counted('slot'),
    title: textOr(found.title, `${where}.title`),
    said: textOr(found.said, `${where}.said`),
    peak: counted('peak'),
    peakStep: counted('peak_step'),
    steps: counted('steps'),
    columns: list(found.columns, `${where}.columns`).map(one => number(one, `${where}.columns`)),
    bands: list(found.bands, `${where}.bands`).map(one => {
      const given = list(one, `${where}.bands`);
      const words = (place: number): string => text(given[place], `${where}.bands.${place}`);
      const figure = (place: number): number => number(given[place], `${where}.bands.${place}`);
      return {
        category: words(0),
        tensors: figure(1),
        nbytes: figure(2),
        shape: words(3),
        op: words(4),
        module: words(5),
        phase: words(6),
        heldNs: figure(7),
        stack: list(given[8], `${where}.bands.8`).map(place => lines[Number(place)] ?? ''),
        changes: list(given[9], `${where}.bands.9`).map(change => {
          const [place, nbytes] = list(change, `${where}.bands.9`);
          return [number(place, `${where}.bands.9`), number(nbytes, `${where}.bands.9`)];
        })
      };
    }),
    phases: regions('phases'),
    modules: regions('modules'),
    groups: list(found.groups ?? [], `${where}.groups`).map(one => {
      const [nbytes, tensors, ...words] = list(one, `${where}.groups`);
      const [category, shape, op, line] = words.map(word => text(word, `${where}.groups`));
      return {
        nbytes: number(nbytes, `${where}.groups`),
        tensors: number(tensors, `${where}.groups`),
        category: category ?? '',
        shape: shape ?? '',
        op: op ?? '',
        line: line ?? ''
      };
    })
  };
}

function collective(value: unknown): ICollective {
  const found = fields(value, 'collectives');
  const counted = (name: string): number => numberOr(found[name], `collectives.${name}`);
  return {
    operation: text(found.operation, 'collectives.operation'),
    group: textOr(found.group, 'collectives.group'),
    ranks: list(found.ranks ?? [], 'collectives.ranks').map(one =>
      number(one, 'collectives.ranks')
    ),
    count: counted('count'),
    nbytes: counted('nbytes'),
    ns: counted('ns'),
    busBandwidth: counted('bus_bandwidth'),
    waited: bySlot(found.waited_ns, 'collectives.waited_ns', number)
  };
}

function advice(value: unknown): IAdvice {
  const found = fields(value, 'advice');
  return {
    rule: textOr(found.rule, 'advice.rule'),
    text: text(found.text, 'advice.text'),
    line: textOr(found.line, 'advice.line')
  };
}

function lastError(value: unknown): ILastError {
  const found = fields(value, 'error');
  return {
    kind: text(found.kind, 'error.kind'),
    message: textOr(found.message, 'error.message'),
    device: maybe<number | null>(found.device, one => number(one, 'error.device'), null)
  };
}

function message(found: Fields): IMessage {
  const kind = found.kind;
  if (kind !== 'state' && kind !== 'update') {
    throw new Unreadable('kind');
  }
  return {
    version: numberOr(found.version, 'version', VERSION),
    kind,
    seq: number(found.seq, 'seq'),
    epoch: number(found.epoch, 'epoch'),
    enabled: Boolean(found.enabled),
    note: textOr(found.note, 'note'),
    spec: textOr(found.spec, 'spec'),
    real: found.real === true,
    compute: textOr(found.compute, 'compute', 'real'),
    nowNs: numberOr(found.now_ns, 'now_ns'),
    busy: Boolean(found.busy),
    columns: list(found.columns ?? [], 'columns').map(one => text(one, 'columns')),
    devices: list(found.devices, 'devices').map((one, place) => device(one, `devices.${place}`)),
    utilisation: bySlot(found.utilisation, 'utilisation', number),
    history: bySlot(found.history, 'history', (rows, where) =>
      list(rows, where).map(row => list(row, where).map(one => number(one, where)))
    ),
    steps: list(found.steps ?? [], 'steps').map(one => {
      const [ns, step] = list(one, 'steps');
      return [number(ns, 'steps'), number(step, 'steps')];
    }),
    timeline: maybe<ITimeline | null>(found.timeline, timeline, null),
    allocations: maybe<IAllocations[] | null>(
      found.allocations,
      given => list(given, 'allocations').map(allocations),
      null
    ),
    collectives: maybe<ICollective[] | null>(
      found.collectives,
      given => list(given, 'collectives').map(collective),
      null
    ),
    error: maybe<ILastError | null>(found.error, lastError, null),
    advice: maybe<IAdvice[] | null>(found.advice, given => list(given, 'advice').map(advice), null)
  };
}

/** Read a message of the telemetry comm. */
export function parse(value: unknown): IMessage | Fault {
  const named = typeof value === 'object' && value !== null ? (value as Fields).version : undefined;
  try {
    return message(fields(value, 'message'));
  } catch (error) {
    if (error instanceof Unreadable) {
      return new Fault(error.message, typeof named === 'number' ? named : null);
    }
    throw error;
  }
}
