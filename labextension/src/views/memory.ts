/** The memory of a model's GPUs as curves with names and colours: what the figure draws. */

import { deviceName, Model } from '../telemetry/model';
import type { IDevice } from '../telemetry/schema';
import { capacity, duration, size } from '../units';
import type { IChartData, ILine } from './chart';
import * as series from './series';
import type { ITrans } from './trans';

/** Curves for so many devices have a colour of their own; then they begin anew. */
const COLOURS = 8;

/** The least that the scale ends at, bytes: an empty GPU has a scale, too. */
const LEAST = 1024;

/** What the curve of a device is drawn in, by the device's place. */
export function lineColour(place: number): string {
  return `--fg-line-${place % COLOURS}`;
}

/** One GPU: its memory by category, since a moment. */
export function byCategory(
  model: Model,
  device: IDevice,
  trans: ITrans,
  since = 0
): Omit<IChartData, 'whole'> {
  const known = series.after(series.categories(model, device.slot), since);
  const { ns, rows } = series.until(known, model.doneNs);
  const layers = series.CATEGORIES.map(name => rows.get(name) as number[]);
  const sums = series.stacked(layers);
  const held = sums[sums.length - 1] ?? [];
  const reserved = rows.get('reserved') as number[];
  const lines: ILine[] = series.CATEGORIES.map((name, place) => ({
    name: spoken(name, trans),
    colour: `--fg-${name.replace('_', '-')}`,
    drawn: sums[place]!,
    said: layers[place]!,
    filled: true
  }))
    .filter(line => line.said.some(value => value > 0))
    .reverse(); // the highest is drawn first, and the others over it
  lines.push(
    { name: trans.__('all tensors'), colour: '--fg-ink', drawn: held, outline: true },
    { name: trans.__('reserved'), colour: '--fg-reserved', drawn: reserved, dashed: true }
  );
  const most = highest(reserved, highest(held));
  const peak = device.memory.peakAllocated;
  const top = Math.max(LEAST, most * 1.12);
  const room = device.memory.total - device.memory.context;
  const nearFull = top > 0.6 * room;
  const levels = peak > 0 ? [level(trans.__('peak %1', size(peak)), peak, '--fg-ink')] : [];
  if (nearFull) {
    // Out of memory is what does not fit beside CUDA's context.
    levels.push(level(trans.__('room for tensors %1', capacity(room)), room, '--fg-full'));
  }
  return {
    ns,
    lines,
    levels,
    top: nearFull ? 1.08 * room : top,
    steps: model.steps.filter(([moment]) => moment >= since),
    said: saidOf(model, device, ns, held, trans)
  };
}

/** Several GPUs: what each holds, in a strip of its own. */
export function byDevice(
  model: Model,
  devices: IDevice[],
  trans: ITrans,
  since = 0
): Omit<IChartData, 'whole'> {
  const { ns, rows } = series.after(series.held(model, devices), since);
  const most = [...rows.values()].reduce((best, row) => highest(row, best), LEAST);
  return {
    ns,
    lines: [...rows].map(([name, drawn], place) => ({ name, drawn, colour: lineColour(place) })),
    top: most * 1.08,
    strips: true,
    steps: model.steps.filter(([moment]) => moment >= since),
    said: devices
      .map(device =>
        trans.__(
          '%1: %2 now, at most %3.',
          deviceName(device),
          size(device.memory.allocated),
          size(device.memory.peakAllocated)
        )
      )
      .join(' ')
  };
}

/** The highest value that each step reached; of steps whose beginning is known. */
export function peaks(ns: number[], held: (number | null)[], steps: [number, number][]): number[] {
  const found: number[] = [];
  let place = 0;
  let level = 0;
  for (const [end] of steps) {
    let most = level;
    while (place < ns.length && ns[place]! <= end) {
      level = Number(held[place]);
      most = Math.max(most, level);
      place += 1;
    }
    found.push(most);
  }
  return found;
}

function saidOf(
  model: Model,
  device: IDevice,
  ns: number[],
  held: number[],
  trans: ITrans
): string {
  const { memory } = device;
  const steps = model.steps.filter(([moment]) => moment >= (ns[0] ?? Infinity));
  const each = peaks(ns, held, steps).map(size);
  const last = steps.length - 1;
  return [
    trans.__(
      '%1 after %2: tensors hold %3 of the %4 available to them, at most %5 so far; %6 are reserved.',
      deviceName(device),
      duration(model.doneNs),
      size(memory.allocated),
      capacity(memory.total - memory.context),
      size(memory.peakAllocated),
      size(memory.reserved)
    ),
    last < 0
      ? ''
      : trans.__(
          'Step %1 reached %2, step %3 %4.',
          steps[0]![1],
          each[0],
          steps[last]![1],
          each[last]
        )
  ]
    .join(' ')
    .trim();
}

function level(text: string, value: number, colour: string): NonNullable<IChartData['levels']>[0] {
  return { text, value, colour };
}

function highest(values: (number | null)[], least = 0): number {
  return values.reduce<number>((best, value) => Math.max(best, value ?? 0), least);
}

/** A category of memory in words. */
export function spoken(category: string, trans: ITrans): string {
  const words: Record<string, string> = {
    parameters: trans.__('parameters'),
    optimizer_state: trans.__('optimizer state'),
    workspace: trans.__('workspace'),
    gradients: trans.__('gradients'),
    activations: trans.__('activations'),
    inputs: trans.__('inputs'),
    other: trans.__('other')
  };
  return words[category] ?? category;
}
