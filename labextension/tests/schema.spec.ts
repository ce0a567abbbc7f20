import { readFileSync } from 'node:fs';
import { resolve } from 'node:path';

import { parse } from '../src/telemetry/read';
import { Fault, IMessage, VERSION } from '../src/telemetry/schema';
import { device, state } from './fixtures';

function read(value: unknown): IMessage {
  const told = parse(value);
  if (told instanceof Fault) {
    throw new Error(`not understood: ${told.where}`);
  }
  return told;
}

test('a state is read whole', () => {
  const told = read(
    state({
      timeline: {
        number: 2,
        title: 'step 3',
        began_ns: 5,
        ended_ns: 25,
        lanes: [{ label: 'cuda:0', bars: [[5, 9, 'kernel', 'mm']] }],
        top: []
      },
      collectives: [
        {
          operation: 'all_reduce',
          group: 'world',
          ranks: [0, 1],
          count: 4,
          nbytes: 100,
          ns: 7,
          bus_bandwidth: 2e11,
          waited_ns: { '1': 3 }
        }
      ],
      error: { kind: 'OutOfMemoryError', message: 'CUDA out of memory.', device: 1 },
      advice: [{ rule: 'sync', text: 'a sync per step', line: 'loss.item()' }]
    })
  );
  expect(told.devices.map(one => one.slot)).toEqual([0, 1]);
  expect(told.devices[0]?.memory.total).toBe(80 * 2 ** 30);
  expect(told.devices[0]?.counters.sentTo).toEqual(new Map([[1, 512]]));
  expect(told.utilisation).toEqual(
    new Map([
      [0, 0.5],
      [1, 0]
    ])
  );
  expect(told.history.get(0)).toHaveLength(2);
  expect(told.timeline?.lanes[0]?.bars[0]).toEqual({
    start: 5,
    end: 9,
    kind: 'kernel',
    label: 'mm'
  });
  expect(told.collectives?.[0]?.waited.get(1)).toBe(3);
  expect(told.error?.device).toBe(1);
  expect(told.advice?.[0]?.rule).toBe('sync');
});

test('null is "as before", not "none"', () => {
  const told = read(state({ kind: 'update', collectives: null, advice: null }));
  expect(told.collectives).toBeNull();
  expect(told.advice).toBeNull();
});

test('an older kernel leaves out what came later', () => {
  const old = state();
  for (const name of ['steps', 'collectives', 'advice', 'compute', 'utilisation', 'timeline']) {
    delete old[name];
  }
  const counters = { kernels: 1 };
  const told = read({ ...old, devices: [device(0, 0, { counters, time: undefined })] });
  expect(told.compute).toBe('real');
  expect(told.devices[0]?.counters).toMatchObject({ kernels: 1, h2dBytes: 0 });
  expect(told.collectives).toBeNull();
});

test('a newer kernel may say more, and is understood as long as it says the same', () => {
  const told = read(
    state({ version: VERSION + 1, fans: [1, 2], devices: [device(0, 5, { fan: 3 })] })
  );
  expect(told.devices[0]?.memory.allocated).toBe(5);
});

test('a newer kernel that says something else is told apart from a broken one', () => {
  const newer = parse(state({ version: VERSION + 1, devices: { '0': {} } }));
  expect(newer).toBeInstanceOf(Fault);
  expect((newer as Fault).newer).toBe(true);
  const broken = parse(state({ devices: { '0': {} } }));
  expect((broken as Fault).newer).toBe(false);
  expect((broken as Fault).where).toBe('devices');
});

test.each([
  [null, 'message'],
  ['text', 'message'],
  [[], 'message'],
  [{}, 'kind'],
  [state({ kind: 'news' }), 'kind'],
  [state({ seq: '1' }), 'seq'],
  [state({ epoch: NaN }), 'epoch'],
  [state({ history: { '0': [[1, 'x']] } }), 'history.0'],
  [state({ history: { one: [] } }), 'history'],
  [state({ devices: [device(0, 0, { memory: {} })] }), 'devices.0.memory.total'],
  [state({ devices: [device(0, 0, { name: 7 })] }), 'devices.0.name']
])('what cannot be understood is a fault that says where: %#', (value, where) => {
  const told = parse(value);
  expect(told).toBeInstanceOf(Fault);
  expect((told as Fault).where).toBe(where);
});

test("the kernel's own schema has every field that is read here", () => {
  const path = resolve(__dirname, '../../fakegpu_lab/notebook/telemetry/telemetry.schema.json');
  const schema = JSON.parse(readFileSync(path, 'utf-8')) as {
    title: string;
    telemetry: {
      required: string[];
      properties: object;
      $defs: Record<string, { properties: object }>;
    };
  };
  expect(schema.title).toContain(`version ${VERSION}`);
  const known = Object.keys(schema.telemetry.properties);
  expect(known).toEqual(expect.arrayContaining(Object.keys(state())));
  const sample = device(0, 0) as Record<string, object>;
  const { Memory, Counters, DeviceSnapshot } = schema.telemetry.$defs;
  expect(Object.keys(DeviceSnapshot!.properties)).toEqual(
    expect.arrayContaining(Object.keys(sample))
  );
  expect(Object.keys(Memory!.properties)).toEqual(
    expect.arrayContaining(Object.keys(sample.memory!))
  );
  expect(Object.keys(Counters!.properties)).toEqual(
    expect.arrayContaining(Object.keys(sample.counters!))
  );
});
