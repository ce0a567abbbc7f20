import { csv, ofCurves, ofMatrix, ofPart, ofTimeline } from '../src/views/csv';
import { byCategory, byDevice, peaks } from '../src/views/memory';
import {
  before,
  categories,
  held,
  lately,
  spark,
  stacked,
  steps,
  transfers,
  utilisation
} from '../src/views/series';
import { ticks } from '../src/views/ticks';
import { plain } from '../src/views/trans';
import { scaled, View, zoomOf } from '../src/views/view';
import { Model } from '../src/telemetry/model';
import { parse } from '../src/telemetry/read';
import { Fault } from '../src/telemetry/schema';
import { COLUMNS, device, GIB, state, update } from './fixtures';

const trans = plain;

function heard(...messages: object[]): Model {
  const model = new Model();
  for (const message of messages) {
    const told = parse(message);
    if (told instanceof Fault) {
      throw new Error(told.where);
    }
    model.take(told);
  }
  return model;
}

test('memory by category adds up to what the device held', () => {
  const model = heard(state());
  const { ns, rows } = categories(model, 0);
  const layers = ['parameters', 'activations', 'other'].map(name => rows.get(name) as number[]);
  expect(ns).toEqual([10, 20]);
  expect(stacked(layers)[2]).toEqual(model.held(0).bytes);
  expect(rows.get('reserved')).toEqual([4 * GIB, 4 * GIB]);
});

test('a category that a newer kernel knows is counted as other', () => {
  const columns = [...COLUMNS.slice(0, -1), 'cuda_graphs', 'reserved'];
  const model = heard(state({ columns, history: { '0': [[10, 1, 0, 0, 0, 0, 0, 2, 5, 9]] } }));
  const { rows } = categories(model, 0);
  expect(rows.get('other')).toEqual([7]);
  expect(rows.get('reserved')).toEqual([9]);
  expect(model.held(0).bytes).toEqual([8]);
});

test('the figure of one GPU: layers that say their own bytes, and the room for them only where it is near', () => {
  const model = heard(state());
  const shown = byCategory(model, model.devices.get(0)!, trans);
  expect(shown.lines.map(line => line.name)).toEqual([
    'activations',
    'parameters',
    'all tensors',
    'reserved'
  ]);
  // The last value holds until now.
  expect(shown.lines[0]).toMatchObject({
    drawn: [GIB, 2 * GIB, 2 * GIB],
    said: [0, GIB, GIB]
  });
  expect(shown.levels?.map(level => level.text)).toEqual(['peak 2.00 GiB']);
  const full = device(0, 2 * GIB) as { memory: { total: number } };
  full.memory.total = 5 * GIB;
  const scarce = heard(state({ devices: [full] }));
  const { levels, top } = byCategory(scarce, scarce.devices.get(0)!, trans);
  expect(levels?.map(level => level.text)).toContain('room for tensors 4.00 GiB');
  expect(top).toBe(1.08 * 4 * GIB);
});

test('the figure of all GPUs: a strip each, and a scale where all are empty', () => {
  const model = heard(state());
  const { lines, steps, strips } = byDevice(model, model.ordered, trans);
  expect(strips).toBe(true);
  expect(lines.map(line => [line.name, line.colour])).toEqual([
    ['cuda:0', '--fg-line-0'],
    ['cuda:1', '--fg-line-1']
  ]);
  expect(steps).toEqual([[15, 1]]);
  expect(byDevice(heard(state({ history: {} })), [], trans).top).toBeGreaterThan(0);
});

test('the text of the figure says its numbers, and each step its peak', () => {
  const model = heard(state());
  const { said } = byCategory(model, model.devices.get(0)!, trans);
  expect(said).toContain(
    'tensors hold 2.00 GiB of the 79.00 GiB available to them, at most 2.00 GiB so far'
  );
  expect(said).toContain('Step 1 reached 1.00 GiB');
  expect(
    peaks(
      [1, 2, 3, 5],
      [5, 70, 6, 1],
      [
        [3, 1],
        [9, 2]
      ]
    )
  ).toEqual([70, 6]);
});

test('what was cleared is left out, and the value of then stays', () => {
  const model = heard(state());
  const shown = byCategory(model, model.devices.get(0)!, trans, 15);
  expect(shown.ns).toEqual([15, 20, 30]);
  expect(shown.lines.find(line => line.outline)?.drawn).toEqual([GIB, 2 * GIB, 2 * GIB]);
});

test('a peak between two moments is not lost', () => {
  expect(steps([1, 2, 3, 9], [5, 70, 6, 1], [0, 4, 8, 10])).toEqual([null, 70, 6, 6]);
});

test('all devices are drawn over the same moments, and over no more than a screen is wide', () => {
  const many = Array.from({ length: 1000 }, (_, place) => [place + 30, place, 0, 0, 0, 0, 0, 0, 0]);
  const model = heard(
    state({ now_ns: 2000, history: { '0': many, '1': [[500, 7, 0, 0, 0, 0, 0, 0, 0]] } })
  );
  const { ns, rows } = held(model, model.ordered, 100);
  expect(ns).toHaveLength(101);
  expect([ns[0], ns[99], ns[100]]).toEqual([30, 2000, 2000]);
  expect([...rows.keys()]).toEqual(['cuda:0', 'cuda:1']);
  expect(Math.max(...(rows.get('cuda:0') as number[]))).toBe(999);
  expect(rows.get('cuda:1')![0]).toBeNull();
  expect(rows.get('cuda:1')![99]).toBe(7);
});

test('utilisation has its time', () => {
  const model = heard(state(), update(2, { now_ns: 90, utilisation: { '0': 0.75, '1': 0.25 } }));
  const { ns, rows } = utilisation(model, model.ordered);
  expect(ns).toEqual([0, 30, 90]); // a stretch begins where the one before ended
  expect(rows.get('cuda:0')).toEqual([0.5, 0.75, 0.75]);
});

test('what was measured over very little is put together with what was before', () => {
  const model = heard(state({ now_ns: 500, utilisation: { '0': 0.5, '1': 0 } }));
  const told = (seq: number, now: number, part: number): object =>
    update(seq, { now_ns: now, utilisation: { '0': part, '1': 0 } });
  for (const message of [told(2, 1000, 0.9), told(3, 1010, 0)]) {
    const read = parse(message);
    model.take(read as Exclude<typeof read, Fault>);
  }
  const { ns, rows } = utilisation(model, model.ordered);
  expect(ns).toEqual([0, 500, 1010]);
  const part = (0.9 * 500) / 510;
  expect(rows.get('cuda:0')).toEqual([0.5, part, part]);
  expect(lately(model, model.ordered[0]!)).toEqual({ part, ns: 510 });
});

test('a card draws memory and utilisation over the same time', () => {
  const model = heard(state(), update(2, { now_ns: 90, utilisation: { '0': 0.75, '1': 0.25 } }));
  const { begin, end, x, y, at, parts } = spark(model, model.ordered[0]!);
  expect([begin, end]).toEqual([10, 90]); // memory was told until 20, and is held until now
  expect([x, y]).toEqual([
    [10, 20],
    [GIB, 2 * GIB]
  ]);
  expect([at, parts]).toEqual([
    [0, 30, 90],
    [0.5, 0.75, 0.75]
  ]);
  const without = spark(model, model.ordered[1]!);
  expect([without.begin, without.end, without.x]).toEqual([0, 90, []]);
  const later = heard(state(), update(2, { now_ns: 90, utilisation: { '0': 0.75 } }));
  expect(later.ordered.map(each => spark(later, each).end)).toEqual([90, 90]); // also of one that was not told of
});

test('copies are told from row to column, the host first', () => {
  const { names, bytes } = transfers(heard(state()));
  expect(names).toEqual(['host', 'cuda:0', 'cuda:1']);
  expect(bytes).toEqual([
    [0, 1024, 1024],
    [0, 0, 512],
    [0, 0, 0]
  ]);
});

test('a device that is hidden has a name all the same', () => {
  const model = heard(state({ devices: [device(0, 0, { index: -1 })] }));
  expect(transfers(model).names).toEqual(['host', 'hidden (GPU 0)']);
});

test('what is frozen stays, whatever comes', () => {
  const model = heard(state());
  const kept = model.frozen();
  const told = parse(
    update(2, { history: { '0': [[25, 9, 0, 0, 0, 0, 0, 0, 0]] }, devices: [device(0, 7)] })
  );
  model.take(told as Exclude<typeof told, Fault>);
  expect(model.held(0).ns).toEqual([10, 20, 25]);
  expect(kept.held(0).ns).toEqual([10, 20]);
  expect(kept.devices.get(0)?.memory.allocated).toBe(2 * GIB);
});

test('the place of a moment', () => {
  expect([5, 10, 15, 99].map(moment => before([10, 20], moment))).toEqual([-1, 0, 0, 1]);
});

test('CSV that spreadsheets read, and do not compute', () => {
  expect(
    csv([
      ['a', '=1+1', 'x,"y"'],
      [1, -2, null]
    ])
  ).toBe('a,\'=1+1,"x,""y"""\r\n1,-2,\r\n');
  const model = heard(state());
  expect(csv(ofCurves(categories(model, 0), 'bytes')).split('\r\n')[0]).toMatch(
    /^simulated_ns,parameters_bytes,.*reserved_bytes$/
  );
  expect(ofMatrix(transfers(model))).toContainEqual(['cuda:0', 'cuda:1', 512]);
});

test('each part is saved with the names of its columns, of one GPU or of all', () => {
  const model = heard(state());
  const one = model.devices.get(0);
  expect(ofPart('memory', model, one)[0]).toContain('parameters_bytes');
  expect(ofPart('memory', model, undefined)[0]).toEqual([
    'simulated_ns',
    'cuda:0_bytes',
    'cuda:1_bytes'
  ]);
  expect(ofPart('busy', model, one)[0]).toEqual(['simulated_ns', 'cuda:0']);
  expect(ofPart('timeline', model, one)).toEqual([]);
  expect(ofPart('transfers', model, one)).toEqual(ofMatrix(transfers(model)));
  expect(ofPart('collectives', model, one)[0]).toContain('bus_bytes_per_second');
});

test('a timeline, with the kernels that took most, which older kernels do not tell', () => {
  const told = {
    number: 1,
    title: 'Step 1',
    began_ns: 0,
    ended_ns: 100,
    lanes: [{ label: 'cuda:0', bars: [[0, 50, 'matmul', 'aten::mm']] }],
    top: [[0, 'aten::mm', 3, 50]]
  };
  const model = heard(state({ timeline: told }));
  expect(model.timeline?.top).toEqual([{ device: 0, kernel: 'aten::mm', calls: 3, ns: 50 }]);
  expect(ofTimeline(model.timeline!)[1]).toEqual(['cuda:0', 'matmul', 'aten::mm', 0, 50]);
  expect(heard(state({ timeline: { ...told, top: undefined } })).timeline?.top).toEqual([]);
});

test('zooming keeps within the run, and out of it is the whole', () => {
  expect(scaled([0, 100], 50, 0.5, [0, 100])).toEqual([25, 75]);
  expect(scaled([25, 75], 25, 0.5, [0, 100])).toEqual([25, 50]);
  expect(scaled([25, 75], 50, 2, [0, 100])).toBeNull();
});

test('a zoom that was kept is read with care', () => {
  const kept = { kernel: 'a-1', epoch: 2, range: [10, 20] };
  expect(zoomOf(JSON.parse(JSON.stringify(kept)))).toEqual(kept);
  for (const other of [
    undefined,
    null,
    'zoom',
    { ...kept, kernel: undefined },
    { ...kept, epoch: '2' },
    { ...kept, range: 10 },
    { ...kept, range: [20, 10] },
    { ...kept, range: [10, null] }
  ]) {
    expect(zoomOf(other)).toBeNull();
  }
});

test('a cursor that stays where it is says nothing', () => {
  const view = new View();
  let said = 0;
  view.moved.connect(() => (said += 1));
  view.cursor = 5;
  view.cursor = 5;
  view.cursor = null;
  expect(said).toBe(2);
});

test('moments on the scale are all in one unit', () => {
  expect(ticks([0, 5e5, 1e6])).toEqual(['0.0 ms', '0.5 ms', '1.0 ms']);
  expect(ticks([0, 2e9])).toEqual(['0 s', '2 s']);
});

test('an hour of telemetry takes no more memory than a minute', () => {
  const model = heard(state());
  const rows = (seq: number): number[] => [30 + seq, seq, 0, 0, 0, 0, 0, 0, seq];
  for (let seq = 2; seq < 3000; seq++) {
    const told = parse(
      update(seq, {
        now_ns: 30 + seq,
        history: { '0': [rows(seq)], '1': [rows(seq)] },
        steps: [[30 + seq, seq]],
        devices: [device(0, seq)]
      })
    );
    expect(model.take(told as Exclude<typeof told, Fault>)).toBe(false);
  }
  expect(model.held(0).ns.length).toBeLessThanOrEqual(1800);
  expect(model.samples.get(0)).toHaveLength(240);
  expect(model.steps).toHaveLength(400);
});
