import { Model, nearlyFull, ROWS, SAMPLES, shortName, STEPS } from '../src/telemetry/model';
import { parse } from '../src/telemetry/read';
import { Fault, IMessage } from '../src/telemetry/schema';
import { device, GIB, state, update } from './fixtures';

function read(value: unknown): IMessage {
  const told = parse(value);
  if (told instanceof Fault) {
    throw new Error(told.where);
  }
  return told;
}

function heard(...messages: object[]): Model {
  const model = new Model();
  for (const message of messages) {
    model.take(read(message));
  }
  return model;
}

test('a state says all', () => {
  const model = heard(state());
  expect(model.enabled).toBe(true);
  expect(model.ordered.map(one => one.slot)).toEqual([0, 1]);
  expect(model.memory).toEqual({ allocated: 2 * GIB, total: 160 * GIB });
  expect(model.summary).toBe('A100 ×2');
  expect(model.held(0)).toEqual({ ns: [10, 20], bytes: [GIB, 2 * GIB] });
});

test('a run takes until all that was launched is done', () => {
  const later = { time: { busy_ns: 10, done_ns: 7000 } };
  const model = heard(state(), update(2, { now_ns: 30, devices: [device(1, GIB, later)] }));
  expect([model.nowNs, model.doneNs]).toEqual([30, 7000]);
  model.take(read(update(3, { now_ns: 9000 })));
  expect(model.doneNs).toBe(9000);
});

test('an update changes what it names, and leaves the rest', () => {
  const model = heard(
    state({ advice: [{ rule: 'r', text: 't', line: '' }] }),
    update(2, {
      devices: [device(1, 3 * GIB)],
      history: { '0': [[25, 0, 0, 0, 0, 0, 0, 7, 0]] },
      steps: [[26, 2]],
      busy: true
    })
  );
  expect(model.devices.get(0)?.memory.allocated).toBe(2 * GIB);
  expect(model.devices.get(1)?.memory.allocated).toBe(3 * GIB);
  expect(model.held(0).ns).toEqual([10, 20, 25]);
  expect(model.held(0).bytes[2]).toBe(7);
  expect(model.steps).toEqual([
    [15, 1],
    [26, 2]
  ]);
  expect(model.advice).toHaveLength(1);
  expect(model.busy).toBe(true);
});

test('rows of the same moment are all kept: one may be a peak', () => {
  const model = heard(state(), update(2, { history: { '0': [[20, 9, 0, 0, 0, 0, 0, 0, 0]] } }));
  expect(model.held(0)).toEqual({ ns: [10, 20, 20], bytes: [GIB, 2 * GIB, 9] });
});

test('a missed message is noticed, one in order is not', () => {
  const model = heard(state());
  expect(model.take(read(update(2)))).toBe(false);
  expect(model.take(read(update(4)))).toBe(true);
  expect(model.take(read(update(5, { epoch: 2 })))).toBe(true);
  expect(model.take(read(state({ seq: 6, epoch: 2 })))).toBe(false);
  expect(new Model().take(read(update(1)))).toBe(true);
});

test('another machine: nothing of the old one stays', () => {
  const model = heard(
    state(),
    state({ seq: 2, epoch: 2, devices: [device(0, 0)], utilisation: {}, history: {}, steps: [] })
  );
  expect(model.devices.size).toBe(1);
  expect(model.held(0).ns).toEqual([]);
  expect(model.samples.size).toBe(0);
  expect(model.steps).toEqual([]);
});

test('told all anew, nothing is there twice', () => {
  const model = heard(state(), state({ seq: 2 }));
  expect(model.held(0).ns).toEqual([10, 20]);
  expect(model.steps).toHaveLength(1);
});

test('an hour of telemetry leaves its memory flat', () => {
  const model = heard(state());
  for (let seq = 2; seq < 36_000; seq++) {
    model.take(
      read(
        update(seq, {
          history: { '0': [[20 + seq, seq, 0, 0, 0, 0, 0, 0, 0]] },
          steps: [[20 + seq, seq]]
        })
      )
    );
  }
  expect(model.history.get(0)?.length).toBeLessThanOrEqual(ROWS);
  expect(model.samples.get(0)?.length).toBe(SAMPLES);
  expect(model.steps).toHaveLength(STEPS);
  expect(model.held(0).bytes.pop()).toBe(35_999);
  expect(model.held(0).ns[0]).toBe(10);
});

test('the kernel may have other columns', () => {
  const model = heard(
    state({ columns: ['now_ns', 'tensors', 'reserved'], history: { '0': [[5, 8, 100]] } })
  );
  expect(model.held(0)).toEqual({ ns: [5], bytes: [8] });
});

test('nearly full is about tensors and the context, not about what the allocator could give back', () => {
  const kept = read(state({ devices: [device(0, 70 * GIB)] })).devices[0]!;
  expect(nearlyFull(kept)).toBe(false);
  const full = read(state({ devices: [device(0, 72 * GIB)] })).devices[0]!;
  expect(nearlyFull(full)).toBe(true);
});

test.each([
  ['NVIDIA A100-SXM4-80GB', 'A100'],
  ['Tesla T4', 'T4'],
  ['Tesla V100-SXM2-16GB', 'V100'],
  ['NVIDIA GeForce RTX 4090', 'RTX 4090'],
  ['NVIDIA H100 80GB HBM3', 'H100'],
  ['NVIDIA H100 PCIe', 'H100'],
  ['NVIDIA A100 80GB PCIe', 'A100'],
  ['NVIDIA L4', 'L4'],
  ['AMD Instinct', 'AMD Instinct']
])('%s is called %s', (name, short) => {
  expect(shortName(name)).toBe(short);
});
