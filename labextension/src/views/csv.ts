/** Tables as text that spreadsheets read (RFC 4180). */

import type { Model } from '../telemetry/model';
import type { IAllocations, ICollective, IDevice, ITimeline } from '../telemetry/schema';
import type { PartId } from './section';
import * as series from './series';
import type { ICurves, IMatrix } from './series';

type Cell = string | number | null;

/** Lines of cells, the first with the names of the columns. */
export function csv(lines: Cell[][]): string {
  return lines.map(line => line.map(quoted).join(',') + '\r\n').join('');
}

function quoted(cell: Cell): string {
  let text = cell === null ? '' : String(cell);
  if (typeof cell === 'string' && /^[=+\-@\t\r]/.test(text)) {
    text = `'${text}`; // a spreadsheet would compute it
  }
  return /[",\r\n]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text;
}

/** Curves: a line for each moment. */
export function ofCurves(curves: ICurves, unit: string): Cell[][] {
  const names = [...curves.rows.keys()];
  return [
    ['simulated_ns', ...names.map(name => (unit ? `${name}_${unit}` : name))],
    ...curves.ns.map((ns, place) => [
      ns,
      ...names.map(name => curves.rows.get(name)![place] ?? null)
    ])
  ];
}

/** A matrix: a line for each pair that something went between. */
export function ofMatrix(matrix: IMatrix): Cell[][] {
  const lines: Cell[][] = [['from', 'to', 'bytes']];
  matrix.bytes.forEach((row, from) =>
    row.forEach((bytes, to) => {
      if (bytes > 0) {
        lines.push([matrix.names[from]!, matrix.names[to]!, bytes]);
      }
    })
  );
  return lines;
}

/** A timeline: a line for each bar. */
export function ofTimeline(timeline: ITimeline): Cell[][] {
  return [
    ['lane', 'kind', 'label', 'start_ns', 'end_ns'],
    ...timeline.lanes.flatMap(lane =>
      lane.bars.map(bar => [lane.label, bar.kind, bar.label, bar.start, bar.end])
    )
  ];
}

/** Allocations: a line for each band, with the steps at which it is first and last there. */
export function ofAllocations({ bands, columns }: IAllocations): Cell[][] {
  return [
    [
      'category',
      'tensors',
      'bytes',
      'shape',
      'op',
      'module',
      'phase',
      'first_step',
      'last_step',
      'line'
    ],
    ...bands.map(one => {
      const places = one.changes.map(([place]) => columns[place]!);
      const last = one.heldNs < 0 ? columns[columns.length - 1]! : places[places.length - 1]!;
      const { category, tensors, nbytes, shape, op, module, phase, stack } = one;
      return [
        category,
        tensors,
        nbytes,
        shape,
        op,
        module,
        phase,
        places[0]!,
        last,
        stack[0] ?? ''
      ];
    })
  ];
}

/** What ranks did together: a line for each operation. */
export function ofCollectives(collectives: ICollective[]): Cell[][] {
  return [
    ['operation', 'ranks', 'calls', 'bytes', 'ns', 'bus_bytes_per_second'],
    ...collectives.map(one => [
      one.operation,
      one.ranks.join(' '),
      one.count,
      one.nbytes,
      one.ns,
      one.busBandwidth
    ])
  ];
}

/** The figures of a part, of one device or of all, to the last byte and nanosecond. */
export function ofPart(part: PartId, model: Model, device: IDevice | undefined): Cell[][] {
  switch (part) {
    case 'memory':
      return ofCurves(
        device
          ? series.categories(model, device.slot)
          : series.held(model, model.ordered, Infinity),
        'bytes'
      );
    case 'allocations': {
      const found = device
        ? model.allocations.get(device.slot)
        : [...model.allocations.values()].sort((one, other) => other.peak - one.peak)[0];
      return found ? ofAllocations(found) : [];
    }
    case 'busy':
      return ofCurves(series.utilisation(model, device ? [device] : model.ordered), '');
    case 'timeline':
      return model.timeline ? ofTimeline(model.timeline) : [];
    case 'transfers':
      return ofMatrix(series.transfers(model));
    case 'collectives':
      return ofCollectives(model.collectives);
    case 'advice':
      return [
        ['rule', 'advice', 'line'],
        ...model.advice.map(one => [one.rule, one.text, one.line])
      ];
  }
}
