/** The bands of allocations on top of each other: pure, so that it can be tested without a page. */

import type { IAllocations } from '../telemetry/schema';
import type { Range } from './view';

/** By band and column, the upper edge in bytes; its lower edge is the upper one of the band before. */
export type Stack = Float64Array[];

/** Neighbouring pixels that show the same column. */
export interface IRun {
  at: number;
  wide: number;
  column: number;
}

/** Put the bands on each other. */
export function stack({ bands, columns }: Pick<IAllocations, 'bands' | 'columns'>): Stack {
  let below = new Float64Array(columns.length);
  return bands.map(({ changes }) => {
    const edge = new Float64Array(columns.length);
    changes.forEach(([place, nbytes]) => {
      edge[place] = (edge[place] ?? 0) + nbytes;
    });
    let held = 0;
    for (let column = 0; column < edge.length; column++) {
      held += edge[column]!;
      edge[column] = below[column]! + held;
    }
    below = edge;
    return edge;
  });
}

/** All steps; each has the place from half a step before it to half a step after it. */
export function whole({ steps }: Pick<IAllocations, 'steps'>): Range {
  return [-0.5, steps + 0.5];
}

/**
 * The columns that pixels show, from left to right. Of several columns in one pixel it is the one where most is held,
 * so that no peak is lost.
 */
export function runs(
  columns: readonly number[],
  edges: Stack,
  [low, high]: Range,
  wide: number
): IRun[] {
  const top = edges[edges.length - 1];
  const found: IRun[] = [];
  let column = 0;
  for (let at = 0; at < wide; at++) {
    const left = low + ((high - low) * at) / wide;
    const right = low + ((high - low) * (at + 1)) / wide;
    while (column + 1 < columns.length && columns[column + 1]! - 0.5 <= left) {
      column += 1;
    }
    let most = column;
    for (let next = column + 1; next < columns.length && columns[next]! - 0.5 < right; next++) {
      most = (top?.[next] ?? 0) > (top?.[most] ?? 0) ? next : most;
    }
    const last = found[found.length - 1];
    if (last?.column === most) {
      last.wide += 1;
    } else {
      found.push({ at, wide: 1, column: most });
    }
  }
  return found;
}

/** The band that holds these bytes of a column; -1 above all of them. */
export function bandAt(edges: Stack, column: number, bytes: number): number {
  return edges.findIndex(edge => bytes < edge[column]!);
}

/** The columns that a band is in: the first, and the one after the last. */
export function extent(edges: Stack, band: number): Range {
  const [edge, below] = [edges[band]!, edges[band - 1]];
  const alive = (column: number): boolean => edge[column]! > (below?.[column] ?? 0);
  let first = 0;
  while (first < edge.length && !alive(first)) {
    first += 1;
  }
  let last = edge.length;
  while (last > first && !alive(last - 1)) {
    last -= 1;
  }
  return [first, last];
}
