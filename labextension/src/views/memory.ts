/** The memory of a model's GPUs as curves with names and colours: what the figure draws. */

import type { TranslationBundle } from '@jupyterlab/translation';

import type { Model } from '../telemetry/model';
import type { IDevice } from '../telemetry/schema';
import type { IChartData, ILine } from './chart';
import * as series from './series';

/** Curves for so many devices have a colour of their own; then they begin anew. */
const COLOURS = 8;

/** The least that the scale ends at, bytes: an empty GPU has a scale, too. */
const LEAST = 1024;

/** What the curve of a device is drawn in, by the device's place. */
export function lineColour(place: number): string {
  return `--fg-line-${place % COLOURS}`;
}

/** One GPU: its memory by what it is for. */
export function byCategory(
  model: Model,
  device: IDevice,
  trans: TranslationBundle
): Omit<IChartData, 'whole'> {
  const { ns, rows } = series.categories(model, device.slot);
  const layers = series.CATEGORIES.map(name => rows.get(name) as number[]);
  const sums = series.stacked(layers);
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
  lines.push({
    name: trans.__('reserved'),
    colour: '--fg-reserved',
    drawn: reserved,
    dashed: true
  });
  const most = reserved.reduce(
    (best, value) => Math.max(best, value),
    Math.max(0, ...(sums[sums.length - 1] ?? []))
  );
  const top = Math.max(LEAST, most * 1.08);
  const room = device.memory.total - device.memory.context;
  const nearFull = top > 0.6 * room;
  if (nearFull) {
    lines.push({
      name: trans.__('room for tensors'), // out of memory is what does not fit beside CUDA's context
      colour: '--fg-full',
      drawn: ns.map(() => room)
    });
  }
  return {
    ns,
    lines,
    top: nearFull ? 1.05 * room : top,
    steps: model.steps.map(([moment]) => moment)
  };
}

/** Several GPUs: what each holds. */
export function byDevice(model: Model, devices: IDevice[]): Omit<IChartData, 'whole'> {
  const { ns, rows } = series.held(model, devices);
  let most = LEAST;
  for (const row of rows.values()) {
    most = row.reduce<number>((best, value) => Math.max(best, value ?? 0), most);
  }
  return {
    ns,
    lines: [...rows].map(([name, drawn], place) => ({ name, drawn, colour: lineColour(place) })),
    top: most * 1.08,
    steps: model.steps.map(([moment]) => moment)
  };
}

function spoken(category: string, trans: TranslationBundle): string {
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
