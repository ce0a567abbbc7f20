import { ISignal, Signal } from '@lumino/signaling';

/** A stretch of simulated time, ns. */
export type Range = readonly [number, number];

/** A stretch that was zoomed to, and of which machine's time: the kernel, and which of its machines. */
export interface IZoom {
  kernel: string;
  epoch: number;
  range: Range;
}

/** What was kept of a zoom, as it comes back from the browser's or the server's store; null if it is none. */
export function zoomOf(kept: unknown): IZoom | null {
  const { kernel, epoch, range } = (kept ?? {}) as Record<string, unknown>;
  if (typeof kernel !== 'string' || typeof epoch !== 'number' || !Array.isArray(range)) {
    return null;
  }
  const [low, high] = range as unknown[];
  return Number.isFinite(low) && Number.isFinite(high) && Number(low) < Number(high)
    ? { kernel, epoch, range: [Number(low), Number(high)] }
    : null;
}

/** What the figures of a dashboard share: the moment under the cursor, and the stretch that is zoomed to. */
export class View {
  /** Emitted when the cursor was moved. */
  get moved(): ISignal<this, void> {
    return this._moved;
  }

  /** Emitted when another stretch is looked at. */
  get zoomed(): ISignal<this, void> {
    return this._zoomed;
  }

  /** The moment under the cursor; null when it is over none of the figures. */
  get cursor(): number | null {
    return this._cursor;
  }

  set cursor(ns: number | null) {
    if (ns !== this._cursor) {
      this._cursor = ns;
      this._moved.emit();
    }
  }

  /** What is zoomed to; null for the whole run, as it grows. */
  get range(): Range | null {
    return this._range;
  }

  set range(range: Range | null) {
    if (range?.[0] !== this._range?.[0] || range?.[1] !== this._range?.[1]) {
      this._range = range;
      this._zoomed.emit();
    }
  }

  private _cursor: number | null = null;
  private _range: Range | null = null;
  private _moved = new Signal<this, void>(this);
  private _zoomed = new Signal<this, void>(this);
}

/** A stretch made narrower (`by` < 1) or wider about a moment, within the whole; null when it is the whole. */
export function scaled(range: Range, about: number, by: number, whole: Range): Range | null {
  const low = Math.max(whole[0], about - (about - range[0]) * by);
  const high = Math.min(whole[1], about + (range[1] - about) * by);
  return low <= whole[0] && high >= whole[1] ? null : [low, Math.max(high, low + 1)];
}

/** What a key zooms to: plus and minus narrow and widen about a moment, 0 shows the whole (null); undefined: no such key. */
export function zoomedBy(
  key: string,
  range: Range,
  about: number,
  whole: Range
): Range | null | undefined {
  switch (key) {
    case '+':
    case '=':
      return scaled(range, about, 0.5, whole);
    case '-':
      return scaled(range, about, 2, whole);
    case '0':
    case 'Escape':
      return null;
    default:
      return undefined;
  }
}
