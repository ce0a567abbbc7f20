/**
 * What the kernel tells (fakegpu_lab/notebook/telemetry/telemetry.schema.json), read with care: the package in the kernel may be
 * older or newer than this extension. Unknown fields are passed over, missing ones that came later have a default, and
 * what cannot be understood is a `Fault` with one sentence, never an exception and never half a message.
 */

/** The version of the schema that is known here. */
export const VERSION = 1;

export interface IMemory {
  total: number;
  free: number;
  allocated: number;
  peakAllocated: number;
  reserved: number;
  context: number;
  ooms: number;
}

export interface ICounters {
  kernels: number;
  h2dBytes: number;
  h2dCount: number;
  d2hBytes: number;
  d2hCount: number;
  p2pSentBytes: number;
  p2pSentCount: number;
  p2pReceivedBytes: number;
  collectiveCount: number;
  collectiveBytes: number;
  collectiveWaitNs: number;
  /** How long copies took, all together, ns. */
  h2dNs: number;
  d2hNs: number;
  p2pSentNs: number;
  /** Bytes sent to other devices, by their slots. */
  sentTo: Map<number, number>;
}

export interface IDevice {
  /** Its CUDA ordinal; -1 where CUDA_VISIBLE_DEVICES hides it. */
  index: number;
  /** Its place in the machine. */
  slot: number;
  id: string;
  name: string;
  memory: IMemory;
  counters: ICounters;
  busyNs: number;
  doneNs: number;
}

export interface IBar {
  start: number;
  end: number;
  kind: string;
  label: string;
}

export interface ILane {
  label: string;
  bars: IBar[];
}

/** All calls of one kernel on one device, in a timeline. */
export interface ITop {
  device: number;
  kernel: string;
  calls: number;
  ns: number;
}

export interface ITimeline {
  number: number;
  title: string;
  began: number;
  ended: number;
  /** When the first GPU was done with what was launched before it. */
  free: number;
  lanes: ILane[];
  /** The kernels that took most. */
  top: ITop[];
}

/** One tensor, or the small tensors of a category, from one allocation to the next. */
export interface IBand {
  category: string;
  /** How many tensors it stands for. */
  tensors: number;
  /** Of the largest. */
  nbytes: number;
  shape: string;
  op: string;
  module: string;
  phase: string;
  /** ns; -1 while it is still held. */
  heldNs: number;
  /** The user's line, then what called it. */
  stack: string[];
  /** Wherever it grows or shrinks: the place in `columns`, and the bytes more. */
  changes: [number, number][];
}

/** Neighbouring steps of one phase or module: its name, the first step, the step after the last one. */
export type IRegion = readonly [string, number, number];

/** Tensors of the peak that are alike. */
export interface IGroup {
  nbytes: number;
  tensors: number;
  /** Empty: all others. */
  category: string;
  shape: string;
  op: string;
  line: string;
}

/** The allocations of one device in the window of the timeline. A step is an allocation or a free. */
export interface IAllocations {
  slot: number;
  title: string;
  said: string;
  peak: number;
  peakStep: number;
  steps: number;
  /** The steps that are drawn. */
  columns: number[];
  /** From the bottom to the top. */
  bands: IBand[];
  phases: IRegion[];
  modules: IRegion[];
  groups: IGroup[];
}

export interface ICollective {
  operation: string;
  group: string;
  ranks: number[];
  count: number;
  nbytes: number;
  ns: number;
  busBandwidth: number;
  /** How long each device waited for the others, ns by slot. */
  waited: Map<number, number>;
}

export interface IAdvice {
  rule: string;
  text: string;
  line: string;
}

export interface ILastError {
  kind: string;
  message: string;
  device: number | null;
}

/** One message: all there is (`state`), or what is new since the one before (`update`). */
export interface IMessage {
  version: number;
  kind: 'state' | 'update';
  seq: number;
  epoch: number;
  enabled: boolean;
  note: string;
  spec: string;
  /** Whether these are real GPUs, which count neither kernels nor copies; times are real then. */
  real: boolean;
  compute: string;
  nowNs: number;
  busy: boolean;
  columns: string[];
  devices: IDevice[];
  utilisation: Map<number, number>;
  history: Map<number, number[][]>;
  steps: [number, number][];
  timeline: ITimeline | null;
  /** Null: as before. */
  allocations: IAllocations[] | null;
  /** Null: as before. */
  collectives: ICollective[] | null;
  error: ILastError | null;
  /** Null: as before. */
  advice: IAdvice[] | null;
}

/** Why a message was not understood. */
export class Fault {
  constructor(
    readonly where: string,
    /** The version that the message names; null if it names none. */
    readonly version: number | null
  ) {}

  /** Whether the kernel's package is newer than this extension. */
  get newer(): boolean {
    return this.version !== null && this.version > VERSION;
  }
}
