import { bandAt, extent, runs, stack, whole } from '../src/views/stack';
import { parse } from '../src/telemetry/read';
import { Fault, IAllocations } from '../src/telemetry/schema';
import { ALLOCATIONS, GIB, state } from './fixtures';

function read(): IAllocations {
  const told = parse(state({ allocations: [ALLOCATIONS] }));
  if (told instanceof Fault) {
    throw new Error(`not understood: ${told.where}`);
  }
  return told.allocations![0]!;
}

const GIVEN = read();
const EDGES = stack(GIVEN);

test('bands lie on each other, and their sum is what is held', () => {
  expect([...EDGES[0]!]).toEqual([GIB, GIB, GIB, GIB, GIB]);
  expect([...EDGES[1]!]).toEqual([GIB, 5 * GIB, 5 * GIB, GIB, GIB]);
  expect([...EDGES[2]!]).toEqual([GIB, 5 * GIB, 7 * GIB, 3 * GIB, 3 * GIB]);
});

test('a place of the figure is the band that is there', () => {
  expect(bandAt(EDGES, 2, 0.5 * GIB)).toBe(0);
  expect(bandAt(EDGES, 2, 3 * GIB)).toBe(1);
  expect(bandAt(EDGES, 2, 6 * GIB)).toBe(2);
  expect(bandAt(EDGES, 2, 7.5 * GIB)).toBe(-1);
  expect(bandAt(EDGES, 3, 2 * GIB)).toBe(2);
});

test('a band is there from its allocation to its free', () => {
  expect(extent(EDGES, 1)).toEqual([1, 3]);
  expect(extent(EDGES, 2)).toEqual([2, 5]);
});

test('where a pixel shows several steps it shows the one with the peak', () => {
  expect(runs(GIVEN.columns, EDGES, whole(GIVEN), 10).map(run => run.column)).toEqual([
    0, 1, 2, 3, 4
  ]);
  expect(runs(GIVEN.columns, EDGES, whole(GIVEN), 10).map(run => run.wide)).toEqual([
    2, 2, 2, 2, 2
  ]);
  expect(runs(GIVEN.columns, EDGES, whole(GIVEN), 1)).toEqual([{ at: 0, wide: 1, column: 2 }]);
  expect(runs(GIVEN.columns, EDGES, [2.5, 4.5], 4).map(run => run.column)).toEqual([3, 4]);
});
