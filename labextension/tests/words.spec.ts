import { chooses, line, loads, plan } from '../src/hardware/cell';
import { matching } from '../src/hardware/search';
import { unquoted } from '../src/kernel/ask';
import type { IProfile } from '../src/kernel/probe';
import { readSettings } from '../src/settings';
import { capacity, duration, percent, share, size } from '../src/units';

const GIB = 2 ** 30;

test('sizes, shares and times as %fakegpu prints them', () => {
  expect(size(0)).toBe('0');
  expect(size(512)).toBe('512 B');
  expect(size(3.1 * GIB)).toBe('3.10 GiB');
  expect(size(1000 * 1024)).toBe('0.98 MiB');
  expect([8.125, 8.375, 10.25].map(mib => size(mib * 1024 ** 2))).toEqual([
    '8.12 MiB',
    '8.38 MiB',
    '10.2 MiB'
  ]);
  expect(duration(0)).toBe('0');
  expect(duration(999)).toBe('999 ns');
  expect(duration(1500)).toBe('1.50 µs');
  expect(duration(2e9)).toBe('2.00 s');
  expect(percent(0.374)).toBe('37%');
});

test('a card has one size, the one that torch says: an A100 of 80 GB has 79.25 GiB, two have 158.50', () => {
  const a100 = 85_094_039_552;
  expect(capacity(a100)).toBe('79.25 GiB');
  expect(capacity(2 * a100)).toBe('158.50 GiB');
  expect(share(3.1 * GIB, a100)).toBe('3.10 / 79.25 GiB');
  expect(share(0, 2 * a100)).toBe('0 / 158.50 GiB');
});

test('what is little has a unit of its own beside the total', () => {
  expect(share(23.3 * 2 ** 20, 159 * GIB)).toBe('23.3 MiB / 159.00 GiB');
  expect(share(512, 2 * GIB)).toBe('512 B / 2.00 GiB');
  expect(share(100, 512 * 2 ** 20)).toBe('100 B / 512.00 MiB');
});

describe('the cell that chooses', () => {
  const code = (source: string): { type: string; source: string } => ({ type: 'code', source });
  const text = { type: 'markdown', source: '# Lesson' };

  test('is a line of %fakegpu', () => {
    expect(line({ spec: 'a100:2', memory: '' })).toBe('%fakegpu a100:2');
    expect(line({ spec: 't4', memory: '2GiB' })).toBe('%fakegpu t4 --memory 2GiB');
  });

  test('is known by what it does', () => {
    expect(chooses('%load_ext fakegpu_lab\n%fakegpu a100')).toBe(true);
    expect(chooses('# GPUs\n%fakegpu a100 --memory 2GiB\n')).toBe(true);
    expect(chooses('%fakegpu')).toBe(false);
    expect(chooses('%fakegpu reset')).toBe(false);
    expect(chooses('%fakegpu a100\nimport torch')).toBe(false);
    expect(chooses('import torch')).toBe(false);
    expect(loads('import torch\n%load_ext fakegpu_lab')).toBe(true);
  });

  test('takes the place of the one before, and keeps the rest of it', () => {
    const cells = [text, code('# mine\n%load_ext fakegpu_lab\n%fakegpu a100'), code('x')];
    expect(plan(cells, { spec: 't4', memory: '' })).toEqual({
      place: 1,
      replace: true,
      source: '# mine\n%load_ext fakegpu_lab\n%fakegpu t4'
    });
    const options = [code('%fakegpu a100 --memory 2GiB --compute meta')];
    expect(plan(options, { spec: 't4:2', memory: '' }).source).toBe('%fakegpu t4:2 --compute meta');
  });

  test('stands before the first code, and writes over none', () => {
    const source = '%load_ext fakegpu_lab\n%fakegpu a100:2';
    const choice = { spec: 'a100:2', memory: '' };
    expect(plan([text, code('import torch')], choice)).toEqual({
      place: 1,
      replace: false,
      source
    });
    expect(plan([text, code(' \n')], choice)).toEqual({ place: 1, replace: true, source });
    expect(plan([text], choice)).toEqual({ place: 1, replace: false, source });
    expect(plan([], choice)).toEqual({ place: 0, replace: false, source });
  });
});

test('profiles are found by words of any kind', () => {
  const profiles: IProfile[] = [
    {
      id: 'a100',
      name: 'NVIDIA A100-SXM4-80GB',
      architecture: 'ampere',
      memory: 80 * GIB,
      cards: 1
    },
    {
      id: 'rtx-4090',
      name: 'NVIDIA GeForce RTX 4090',
      architecture: 'ada',
      memory: 24 * GIB,
      cards: 1
    },
    { id: 'dgx-a100', name: 'NVIDIA DGX A100', architecture: '', memory: 640 * GIB, cards: 8 }
  ];
  const ids = (words: string): string[] => matching(profiles, words).map(one => one.id);
  expect(ids('')).toHaveLength(3);
  expect(ids('a100')).toEqual(['a100', 'dgx-a100']);
  expect(ids('Ampere 80 GiB')).toEqual(['a100']);
  expect(ids('24 GB')).toEqual(['rtx-4090']);
  expect(ids('geforce')).toEqual(['rtx-4090']);
  expect(ids('h200')).toEqual([]);
});

test("Python's repr of text is read as the text", () => {
  expect(unquoted(`'{"a": "b"}'`)).toBe('{"a": "b"}');
  expect(unquoted(`"it's"`)).toBe("it's");
  expect(unquoted(String.raw`'a\\n \' \n \xd7 \u00b5 \U0001f600'`)).toBe("a\\n ' \n × µ 😀");
  expect(() => unquoted('42')).toThrow();
});

test('a setting of the wrong type is as if it were not set', () => {
  const defaults = readSettings({});
  expect(defaults).toMatchObject({ updateRate: 10, spec: 'a100:2', transfers: true });
  expect(readSettings({ updateRate: 'fast', defaultGpus: ' ', showTransfers: 3 })).toEqual(
    defaults
  );
  expect(
    readSettings({ updateRate: 2, defaultGpus: 't4', statusBar: 1, showAdvice: false })
  ).toMatchObject({
    updateRate: 2,
    spec: 't4',
    advice: false
  });
});
