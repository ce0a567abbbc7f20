import { History } from './history';
import { Ring } from './ring';
import {
  IAdvice,
  IAllocations,
  ICollective,
  IDevice,
  ILastError,
  IMessage,
  ITimeline
} from './schema';

/** Rows of a device's history that are kept; the kernel itself keeps 900. */
export const ROWS = 1800;

/** Figures of utilisation that are kept for the sparkline. */
export const SAMPLES = 240;

/** Marks of steps that are kept. */
export const STEPS = 400;

/** Of its memory, from which a device counts as nearly full. */
export const NEARLY_FULL = 0.9;

/** What is known of one kernel's machine. Its memory does not grow, however long it is told. */
export class Model {
  /** Whether anything was heard yet. */
  heard = false;
  enabled = false;
  note = '';
  spec = '';
  real = false;
  compute = 'real';
  nowNs = 0;
  busy = false;
  epoch = -1;
  devices = new Map<number, IDevice>();
  utilisation = new Map<number, number>();
  /** By slot, rows of `columns`, and behind them the sum of what is held. */
  history = new Map<number, History>();
  columns: string[] = [];
  /** By slot, rows of utilisation and the simulated time at its end, in the order in which they came. */
  samples = new Map<number, Ring>();
  steps: [number, number][] = [];
  timeline: ITimeline | null = null;
  /** Of the last window, by slot. */
  allocations = new Map<number, IAllocations>();
  collectives: ICollective[] = [];
  error: ILastError | null = null;
  advice: IAdvice[] = [];

  /** The number of the last message; what is acknowledged. */
  seq = 0;

  /**
   * Take in a message.
   *
   * @returns whether one in between was missed, and all should be asked for anew.
   */
  take(message: IMessage): boolean {
    const whole = message.kind === 'state';
    const missed =
      !whole && (!this.heard || message.epoch !== this.epoch || message.seq !== this.seq + 1);
    if (message.epoch !== this.epoch) {
      this._forget();
    } else if (whole) {
      this.history.clear();
      this.steps = [];
      this.devices.clear();
    }
    this.heard = true;
    this.epoch = message.epoch;
    this.seq = message.seq;
    this.enabled = message.enabled;
    this.note = message.note;
    this.spec = message.spec;
    this.real = message.real;
    this.compute = message.compute;
    this.nowNs = message.nowNs;
    this.busy = message.busy;
    this.error = message.error;
    if (message.columns.length > 0) {
      this.columns = message.columns;
    }
    for (const device of message.devices) {
      this.devices.set(device.slot, device);
    }
    this._append(message);
    this.steps = [...this.steps, ...message.steps].slice(-STEPS);
    this.timeline = message.timeline ?? this.timeline;
    if (message.allocations) {
      this.allocations = new Map(message.allocations.map(one => [one.slot, one]));
    }
    this.collectives = message.collectives ?? this.collectives;
    this.advice = message.advice ?? this.advice;
    return missed;
  }

  /** Devices in the machine's order. */
  get ordered(): IDevice[] {
    return [...this.devices.values()].sort((one, other) => one.slot - other.slot);
  }

  /** When all that was launched is done, ns: the simulated time that a run is said to take. */
  get doneNs(): number {
    return Math.max(this.nowNs, ...[...this.devices.values()].map(device => device.doneNs));
  }

  /** Bytes that tensors hold, and all there are, over all devices. */
  get memory(): { allocated: number; total: number } {
    let allocated = 0;
    let total = 0;
    for (const { memory } of this.devices.values()) {
      allocated += memory.allocated;
      total += memory.total;
    }
    return { allocated, total };
  }

  /** Whether any device is nearly full. */
  get nearlyFull(): boolean {
    return [...this.devices.values()].some(nearlyFull);
  }

  /** The devices in a few words: `A100 ×2`, `A100 ×2 + T4`. */
  get summary(): string {
    const kinds = new Map<string, number>();
    for (const device of this.ordered) {
      const short = shortName(device.name);
      kinds.set(short, (kinds.get(short) ?? 0) + 1);
    }
    return [...kinds].map(([name, many]) => (many > 1 ? `${name} ×${many}` : name)).join(' + ');
  }

  /** Bytes that a device held over simulated time: tensors of all categories, added up. */
  held(slot: number): { ns: number[]; bytes: number[] } {
    const ring = this.history.get(slot);
    const now = Math.max(0, this.columns.indexOf('now_ns'));
    return { ns: ring?.column(now) ?? [], bytes: ring?.column(this.columns.length) ?? [] };
  }

  /** All as it is now; it stays so, whatever this model takes in. */
  frozen(): Model {
    const made = Object.assign(new Model(), this);
    made.devices = new Map(this.devices);
    made.utilisation = new Map(this.utilisation);
    made.history = new Map([...this.history].map(([slot, ring]) => [slot, ring.copy()]));
    made.samples = new Map([...this.samples].map(([slot, ring]) => [slot, ring.copy()]));
    return made;
  }

  private _append(message: IMessage): void {
    const others = [Math.max(0, this.columns.indexOf('now_ns')), this.columns.indexOf('reserved')];
    for (const [slot, rows] of message.history) {
      let ring = this.history.get(slot);
      if (!ring || ring.columns !== this.columns.length + 1) {
        ring = new History(ROWS, this.columns.length + 1, others[0]!, this.columns.length);
        this.history.set(slot, ring);
      }
      for (const told of rows) {
        const row = this.columns.map((_, column) => told[column] ?? 0);
        const held = row.reduce(
          (sum, value, column) => (others.includes(column) ? sum : sum + value),
          0
        );
        ring.push([...row, held]);
      }
    }
    for (const [slot, part] of message.utilisation) {
      this.utilisation.set(slot, part);
      let ring = this.samples.get(slot);
      if (!ring) {
        ring = new Ring(SAMPLES, 2);
        this.samples.set(slot, ring);
      }
      ring.push([part, Math.max(message.nowNs, this.devices.get(slot)?.doneNs ?? 0)]);
    }
  }

  private _forget(): void {
    this.devices.clear();
    this.utilisation.clear();
    this.history.clear();
    this.samples.clear();
    this.steps = [];
    this.timeline = null;
    this.allocations = new Map();
    this.collectives = [];
    this.advice = [];
  }
}

/** Whether a device is nearly full: of its tensors, not of what its allocator keeps and could give back. */
export function nearlyFull(device: IDevice): boolean {
  const { memory } = device;
  return memory.total > 0 && memory.allocated + memory.context >= NEARLY_FULL * memory.total;
}

/** What PyTorch calls a device; its place in the machine where CUDA_VISIBLE_DEVICES hides it. */
export function deviceName(device: IDevice): string {
  return device.index >= 0 ? `cuda:${device.index}` : `hidden (GPU ${device.slot})`;
}

/** What people call a card: `NVIDIA A100-SXM4-80GB` is an A100, `NVIDIA GeForce RTX 4090` an RTX 4090. */
export function shortName(name: string): string {
  const bare = name.replace(/^NVIDIA\s+/i, '').replace(/^(GeForce|Tesla|Quadro)\s+/i, '');
  const card = /^[A-Z]+\d+[A-Z]*(?=[- ]|$)/.exec(bare);
  return card ? card[0] : bare;
}
