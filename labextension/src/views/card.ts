import { h, mark, say, watchSight } from '../dom';
import { deviceName, Model, nearlyFull, shortName } from '../telemetry/model';
import type { IDevice } from '../telemetry/schema';
import { capacity, count, duration, exact, percent, share, size } from '../units';
import { Meter } from './meter';
import { lately, spark } from './series';
import { IColours, Sparkline } from './sparkline';
import type { ITrans } from './trans';

/** Which figures a card has. */
export interface ICardOptions {
  transfers: boolean;
  collectives: boolean;
}

/** How long a card that is out of view stays as it is, ms. */
const UNSEEN = 1000;

/** One device: name, memory, utilisation, what it did. */
export class Card {
  constructor(
    private _trans: ITrans,
    open: (slot: number) => void,
    /** What a click does, in words: `%1` is the card's name. */
    private _click: string
  ) {
    // The whole card can be clicked; the keyboard and screen readers have the button in it.
    this._name = h('button', { class: 'fg-Card-name', type: 'button' });
    this._meter = new Meter(_trans);
    this.node = h(
      'section',
      { class: 'fg-Card', onclick: () => open(this._slot) },
      h('h3', { class: 'fg-Card-head' }, this._name, this._state),
      this._meter.node,
      h('div', { class: 'fg-Card-line' }, this._memory, this._used),
      this._spark.node,
      this._facts
    );
    watchSight(this.node, seen => {
      this._seen = seen;
      if (seen) {
        this._late?.();
      }
      this._spark.seen = seen;
    });
  }

  readonly node: HTMLElement;

  /**
   * Show a device as it is now. Of many cards few are in view: while the kernel is busy the others follow once a second,
   * and when they come into view.
   */
  show(
    device: IDevice,
    model: Model,
    options: ICardOptions,
    colours: IColours,
    chosen?: boolean
  ): void {
    if (chosen !== undefined) {
      mark(this._name, 'aria-pressed', String(chosen));
      this.node.classList.toggle('fg-mod-chosen', chosen);
    }
    this._late = () => this._show(device, model, options, colours);
    const now = performance.now();
    if (this._seen || !model.busy || now - this._shown > UNSEEN) {
      this._shown = now;
      this._late();
    }
  }

  private _show(device: IDevice, model: Model, options: ICardOptions, colours: IColours): void {
    this._late = null;
    const { memory } = device;
    const { part, ns: stretch } = lately(model, device);
    const place = deviceName(device);
    say(this._name, `${place}  ${shortName(device.name)}`);
    mark(this._name, 'title', this._click.replace('%1', device.name));
    this._slot = device.slot;
    const busy =
      stretch > 0
        ? this._trans.__('%1 busy in the last %2', percent(part), duration(stretch))
        : this._trans.__('%1 busy', percent(part));
    say(this._used, busy);
    mark(
      this._used,
      'title',
      this._trans.__(
        'The share of simulated time in which a kernel ran; in the whole run, %1 of %2',
        duration(device.busyNs),
        duration(model.doneNs)
      )
    );
    say(this._memory, share(memory.allocated, memory.total));
    mark(
      this._memory,
      'title',
      this._trans.__(
        'Tensors hold %1 (at most %2 so far); PyTorch has reserved %3; the card has %4',
        exact(memory.allocated),
        size(memory.peakAllocated),
        size(memory.reserved),
        capacity(memory.total)
      )
    );
    const full = nearlyFull(device);
    this.node.classList.toggle('fg-mod-full', full);
    say(
      this._state,
      memory.ooms > 0
        ? this._trans._n('out of memory once', 'out of memory %1×', memory.ooms)
        : full
          ? this._trans.__('nearly full')
          : ''
    );
    this._meter.show(device, model);
    this._spark.draw(
      () => {
        // The bar above says how full the card is; the curve, how it came to that.
        const curves = spark(model, device);
        const known = curves.x.length + curves.at.length > 0;
        return {
          ...curves,
          words: {
            top: !known
              ? ''
              : curves.top > 1
                ? this._trans.__('scale: %1, 100%', size(curves.top))
                : this._trans.__('scale: 100%'),
            begin: known ? duration(curves.begin) : '',
            end: known ? duration(curves.end) : ''
          }
        };
      },
      colours,
      this._trans.__(
        '%1: memory %2, at most %3; %4',
        place,
        share(memory.allocated, memory.total),
        size(memory.peakAllocated),
        busy
      )
    );
    this._tell(model.real ? [] : this._lines(device, options));
  }

  private _lines({ counters }: IDevice, options: ICardOptions): [string, string][] {
    const collectives =
      counters.collectiveCount > 0
        ? ` ${this._trans._n('and %1 collective', 'and %1 collectives', counters.collectiveCount)}`
        : '';
    const lines: [string, string][] = [
      [this._trans.__('Kernels'), count(counters.kernels) + collectives]
    ];
    if (options.transfers) {
      lines.push(
        [this._trans.__('Host to device'), this._copied(counters.h2dBytes, counters.h2dCount)],
        [this._trans.__('Device to host'), this._copied(counters.d2hBytes, counters.d2hCount)]
      );
      if (counters.p2pSentBytes + counters.p2pReceivedBytes > 0) {
        lines.push([
          this._trans.__('Other GPUs'),
          this._trans.__(
            '%1 sent, %2 received',
            size(counters.p2pSentBytes),
            size(counters.p2pReceivedBytes)
          )
        ]);
      }
    }
    if (options.collectives && counters.collectiveCount > 0) {
      lines.push(
        [
          this._trans.__('Collectives'),
          `${size(counters.collectiveBytes)} ${this._trans._n('in %1 call', 'in %1 calls', counters.collectiveCount)}`
        ],
        [this._trans.__('Waited for others'), duration(counters.collectiveWaitNs)]
      );
    }
    return lines;
  }

  private _copied(nbytes: number, copies: number): string {
    return copies > 0
      ? `${size(nbytes)} ${this._trans._n('in %1 copy', 'in %1 copies', copies)}`
      : this._trans.__('none');
  }

  private _tell(lines: [string, string][]): void {
    const { children } = this._facts;
    while (children.length > 2 * lines.length) {
      this._facts.lastElementChild?.remove();
    }
    while (children.length < 2 * lines.length) {
      this._facts.append(h('dt'), h('dd'));
    }
    lines.forEach(([name, value], place) => {
      say(children[2 * place]!, name);
      say(children[2 * place + 1]!, value);
    });
  }

  private _seen = false;
  /** What is to be done to show what was not shown yet. */
  private _late: (() => void) | null = null;
  /** When it was drawn, ms. */
  private _shown = -Infinity;
  private _slot = 0;
  private _name: HTMLButtonElement;
  private _state = h('span', { class: 'fg-Card-state' });
  private _memory = h('span', { class: 'fg-Card-memory' });
  private _used = h('span', { class: 'fg-Card-used' });
  private _meter: Meter;
  private _spark = new Sparkline();
  private _facts = h('dl', { class: 'fg-Facts' });
}
