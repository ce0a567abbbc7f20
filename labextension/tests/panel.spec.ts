/** @jest-environment jsdom */

import { drawn, furnish } from './page';

furnish();

import { Panel } from '../src/panel/panel';
import { ALLOCATIONS, device, GIB, state, update } from './fixtures';

const soon = (): Promise<void> => new Promise(done => setTimeout(done, 300));

async function shown(...messages: object[]): Promise<Panel> {
  const panel = new Panel('light');
  document.body.replaceChildren(panel.node);
  messages.forEach(message => panel.take(message));
  await soon();
  return panel;
}

const text = (selector: string): string => document.querySelector(selector)?.textContent ?? '';

const TIMELINE = {
  number: 1,
  title: 'Step 1',
  began_ns: 0,
  ended_ns: 100,
  lanes: [{ label: 'cuda:0 stream 0', bars: [[0, 50, 'matmul', 'aten::mm']] }],
  top: [[0, 'aten::mm', 3, 50]]
};

test('before the kernel speaks it says what it waits for', async () => {
  await shown();
  expect(text('.fg-Panel-status')).toBe('waiting for the kernel');
  expect(text('.fg-Section-why')).toContain('The kernel has not sent anything yet');
});

test('a card for each GPU, and the memory of the first as a figure that says its numbers', async () => {
  await shown(state());
  expect(document.querySelectorAll('.fg-Card')).toHaveLength(2);
  expect(text('.fg-Card-memory')).toBe('2.00 / 80.00 GiB');
  const host = document.querySelector('[data-part=memory] .fg-Chart-host')!;
  expect(host.getAttribute('role')).toBe('img');
  expect(host.getAttribute('aria-label')).toContain(
    'tensors hold 2.00 GiB of the 79.00 GiB available to them'
  );
  expect(drawn.texts).toEqual(expect.arrayContaining(['end of step', '1']));
  expect(drawn.texts).toContain('peak 2.00 GiB');
  const parameters = document.querySelector('[data-line=parameters]')!;
  expect(parameters.textContent).toBe('parameters 1.00 GiB');
  expect((parameters.lastElementChild as HTMLElement).title).toBe('1,073,741,824 bytes');
});

test('of real GPUs, it shows real time, and no counts that a card does not make', async () => {
  await shown(state());
  expect(text('.fg-Panel-head strong')).toBe('Simulated GPUs');
  expect(text('.fg-Panel-clock')).toMatch(/ simulated$/);
  expect(text('.fg-Card')).toContain('Kernels');
  await shown(state({ spec: '2 × NVIDIA A100-SXM4-80GB', real: true }));
  expect(text('.fg-Panel-head strong')).toBe('Real GPUs');
  expect(text('.fg-Panel-clock')).toBe('2 × NVIDIA A100-SXM4-80GB · 30 ns');
  expect(text('.fg-Card')).not.toContain('Kernels');
});

test('each part is a tab, with its figures or why there are none', async () => {
  const panel = await shown(state());
  const tabs = [...document.querySelectorAll<HTMLElement>('[role=tab]')];
  expect(tabs.filter(tab => !tab.hidden).map(tab => tab.textContent)).toEqual([
    'Memory',
    'Allocations',
    'Utilization',
    'Timeline',
    'Transfers',
    'Collectives'
  ]);
  const visible = (): string[] =>
    [...document.querySelectorAll<HTMLElement>('[role=tabpanel]')]
      .filter(part => !part.hidden)
      .map(part => part.dataset.part!);
  expect(visible()).toEqual(['memory']);
  tabs[3]!.click();
  await soon();
  expect(visible()).toEqual(['timeline']);
  expect(text('[data-part=timeline] .fg-Section-why')).toContain('No kernel has been recorded yet');
  panel.take(update(2, { timeline: TIMELINE }));
  await soon();
  expect(document.querySelector('.fg-Lanes')!.getAttribute('aria-label')).toContain(
    'Step 1: 1 lanes over 100 ns. Most time went to aten::mm 50%.'
  );
  tabs[4]!.click();
  await soon();
  expect(text('[data-part=transfers]')).toContain('host → cuda:0');
  expect(visible()).toEqual(['transfers']);
});

test('a timeline names bars with room for it, stripes waits, and sums up the ops that it does not name', async () => {
  drawn.texts.length = 0;
  const bars = [
    [0, 50, 'matmul', 'aten::mm'],
    [50, 51, 'elementwise', 'aten::relu'],
    [51, 100, 'host waits', 'waits']
  ];
  const top = [...TIMELINE.top, [-1, '3 more', 7, 20]];
  const lanes = [{ label: 'cuda:0 stream 0', bars }];
  await shown(state({ timeline: { ...TIMELINE, lanes, top } }));
  document.querySelector<HTMLElement>('[data-tab=timeline]')!.click();
  await soon();
  expect(drawn.texts).toContain('aten::mm');
  expect(drawn.texts).not.toContain('aten::relu');
  expect(drawn.texts).not.toContain('waits');
  const striped = [...document.querySelectorAll('[data-part=timeline] .fg-Legend li')]
    .filter(one => one.querySelector('.fg-mod-hatched'))
    .map(one => one.textContent);
  expect(striped).toEqual(['host waits']);
  const rows = [...document.querySelectorAll('[data-part=timeline] tr')].map(row =>
    [...row.children].map(cell => cell.textContent)
  );
  expect(rows).toEqual([
    ['op', 'device', 'kernels', 'time', 'share of time'],
    ['aten::mm', 'cuda:0', '3', '50 ns', '50.0%'],
    ['3 more', '', '7', '20 ns', '20.0%']
  ]);
});

test('a card counts collectives apart from its kernels', async () => {
  const { counters } = device(0, 0) as { counters: object };
  await shown(
    state({ devices: [device(0, 0, { counters: { ...counters, collective_count: 2 } })] })
  );
  expect(text('.fg-Card')).toContain('Kernels3 and 2 collectives');
});

test('every allocation is a band that says its size, shape, line and what called it', async () => {
  await shown(state({ allocations: [ALLOCATIONS] }));
  const figure = document.querySelector<HTMLCanvasElement>('.fg-Bands')!;
  expect(figure.getAttribute('aria-label')).toContain('Step 3. Peak of cuda:0: 7.00 GiB');
  expect(figure.getAttribute('aria-label')).toContain(
    'At the peak: parameters 1.00 GiB, gradients 2.00 GiB, activations 4.00 GiB'
  );
  const key = [...document.querySelectorAll('.fg-Allocations .fg-Legend > li')];
  expect(key.map(one => one.textContent)).toEqual([
    'forward', // what no box may have room for
    'backward',
    'at the peak:',
    'parameters 1.00 GiB',
    'gradients 2.00 GiB',
    'activations 4.00 GiB'
  ]);
  expect(drawn.texts).toEqual(
    expect.arrayContaining(['peak 7.00 GiB', 'forward', 'backward', 'Net.mlp'])
  );
  const said = (): string[] =>
    [...document.querySelectorAll('.fg-Allocations-said > *')].map(one => one.textContent);
  expect(said()[0]).toContain('Each band is a tensor');
  const press = (key: string): boolean =>
    figure.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true }));
  press('ArrowRight');
  expect(said()).toEqual([
    '4.00 GiB · 1024×1024 float32 · 57.1% of the peak',
    'In[3], line 5  return gelu(self.up(x))',
    'called from In[3], line 9  loss.backward()',
    'activations, made in forward by aten::gelu in Net.mlp; held for 5.00 µs'
  ]);
  press('ArrowRight');
  expect(said()[0]).toBe('2.00 GiB · 512 float32 · 28.6% of the peak');
  // The pointer is over the lowest band, at the left: what was there before.
  figure.dispatchEvent(new MouseEvent('pointermove', { clientX: 90, clientY: 270, bubbles: true }));
  expect(said()[0]).toBe('parameters: 1 tensor');
  expect(said()[1]).toBe('Allocated before the recording began.');
  const frame = (): { across: number[] } =>
    JSON.parse(figure.dataset.frame!) as { across: number[] };
  expect(frame().across).toEqual([-0.5, 4.5]);
  press('+');
  expect(frame().across[1]! - frame().across[0]!).toBeLessThan(5);
  press('0');
  expect(frame().across).toEqual([-0.5, 4.5]);
});

test('what made the peak is a table', async () => {
  await shown(state({ allocations: [ALLOCATIONS] }));
  const rows = [...document.querySelectorAll('.fg-mod-peak tbody tr')].map(row =>
    [...row.children].map(cell => cell.textContent)
  );
  expect(rows).toEqual([
    [
      'activations',
      '4.00 GiB',
      '57.1%',
      '1',
      '1024×1024 float32, gelu',
      'In[3], line 5  return gelu(self.up(x))'
    ],
    ['the rest', '3.00 GiB', '42.9%', '2', '', '']
  ]);
  const colours = [...document.querySelectorAll<HTMLElement>('.fg-mod-peak tbody tr')].map(row => [
    row.classList.contains('fg-mod-coloured'),
    row.style.getPropertyValue('--fg-swatch')
  ]);
  expect(colours).toEqual([
    [true, 'var(--fg-activations)'],
    [false, '']
  ]);
});

test('what is paused stands still', async () => {
  const panel = await shown(state());
  const pause = [...document.querySelectorAll('button')].find(one => one.textContent === 'Pause')!;
  pause.click();
  panel.take(update(2, { devices: [device(0, 7 * GIB)] }));
  await soon();
  expect(text('.fg-Panel-status')).toBe('paused');
  expect(text('.fg-Card-memory')).toBe('2.00 / 80.00 GiB');
  pause.click();
  await soon();
  expect(text('.fg-Card-memory')).toBe('7.00 / 80.00 GiB');
});

test('of several GPUs each has a strip with its name', async () => {
  await shown(
    state({ history: { '0': state().history && [[10, GIB, 0, 0, 0, 0, 0, 0, GIB]], '1': [] } })
  );
  drawn.texts.length = 0;
  const choice = document.querySelector<HTMLSelectElement>('select[aria-label=GPU]')!;
  choice.value = '-1';
  choice.dispatchEvent(new Event('change'));
  await soon();
  expect(drawn.texts).toEqual(expect.arrayContaining(['cuda:0', 'cuda:1']));
});

test('a card names what is in its bar, of what the bar is the whole, and over which time a GPU was busy', async () => {
  const one = device(0, 2 * GIB) as { memory: Record<string, number> };
  one.memory.peak_allocated = 5 * GIB;
  one.memory.reserved = 6 * GIB;
  await shown(
    state({ devices: [one, device(1, 0)] }),
    update(2, { now_ns: 90, utilisation: { '0': 0.62, '1': 0 } })
  );
  expect(text('.fg-Card-used')).toBe('62% busy in the last 60 ns');
  expect(
    [...document.querySelectorAll('.fg-Card .fg-Meter-key li')]
      .slice(0, 3)
      .map(one => one.textContent)
  ).toEqual(['peak 5.00 GiB', 'reserved, unused 4.00 GiB', 'CUDA context 1.00 GiB']);
  const drawnAs = (part: string): string =>
    document.querySelector<HTMLElement>(`.fg-Meter > .fg-Meter-${part}`)!.getAttribute('style')!;
  expect(drawnAs('peak')).toContain('left: 6.25%'); // of the 80 GiB that the words beside it say
  expect(drawnAs('kept')).toContain('width: 5%');
  expect(drawnAs('context')).toContain('width: 1.25%');
  expect(document.querySelector('.fg-Meter')!.parentElement!.title).toBe(
    'activations 1.00 GiB, parameters 1.00 GiB'.split(', ').reverse().join(', ')
  );
});

test('where nothing was ever on a GPU, its card has no scale of memory', async () => {
  await shown(state({ devices: [device(1, 0)], history: {} }));
  expect(text('.fg-Spark-scale')).toBe('scale: 100%');
});

test('utilization says of which time its figures are', async () => {
  await shown(state(), update(2, { now_ns: 90, utilisation: { '0': 0.62, '1': 0 } }));
  document.querySelector<HTMLElement>('[data-tab=busy]')!.click();
  await soon();
  const when = (): string => text('[data-part=busy] .fg-Legend-when');
  expect(when()).toBe('in the last 60 ns:');
  const host = document.querySelector('[data-part=busy] .fg-Chart-host')!;
  expect(host.getAttribute('aria-label')).toContain('cuda:0: 62% busy in the last 60 ns.');
  expect(text('[data-part=busy] .fg-Section-note')).toBe(
    'the share of time in which a kernel ran: in the whole run 10 ns of 90 ns, 11%'
  );
  for (let presses = 0; presses < 98; presses++) {
    host.dispatchEvent(new KeyboardEvent('keydown', { key: 'ArrowLeft', bubbles: true }));
  }
  expect(when()).toBe('from 0 to 30 ns:');
});

test('a timeline has the time and the ends of steps that the memory has, and shares of its own time', async () => {
  const earlier = [0, 40, 'earlier work', ''];
  const lanes = [
    { label: 'host main', bars: [[0, 50, 'host waits', 'waits']] },
    { label: 'cuda:0 stream 0', bars: [earlier, [50, 100, 'matmul', 'aten::mm']] }
  ];
  const timeline = { ...TIMELINE, title: 'Step 2', began_ns: 1000, ended_ns: 1100, free_ns: 1040 };
  const moved = lanes.map(({ label, bars }) => ({
    label,
    bars: bars.map(([start, end, ...more]) => [Number(start) + 1000, Number(end) + 1000, ...more])
  }));
  drawn.texts.length = 0;
  await shown(
    state({
      timeline: { ...timeline, lanes: moved },
      now_ns: 1100,
      steps: [
        [1040, 13],
        [1100, 14]
      ]
    })
  );
  document.querySelector<HTMLElement>('[data-tab=timeline]')!.click();
  await soon();
  const figure = document.querySelector<HTMLElement>('.fg-Lanes')!;
  expect(figure.dataset.steps).toBe('end of step 13 14');
  expect(drawn.texts).toContain('1.04 µs'); // as on the axis of the memory, not since the step began
  expect(figure.getAttribute('aria-label')).toContain('Most time went to aten::mm 83%.');
  expect(text('[data-part=timeline] tbody td:last-child')).toBe('83.3%');
});

test('each cell of the matrix of copies says from where to where, also where its heads are not shown', async () => {
  await shown(state());
  const matrix = document.querySelector('.fg-mod-matrix')!;
  expect([...matrix.querySelectorAll('tbody th')].map(one => one.textContent)).toEqual([
    'from host',
    'from cuda:0',
    'from cuda:1'
  ]);
  const cells = [...matrix.querySelectorAll<HTMLElement>('tbody tr:nth-child(2) td')];
  expect(cells.map(one => `${one.dataset.head} ${one.textContent}`)).toEqual([
    'to host 0',
    'to cuda:0 ',
    'to cuda:1 512 B'
  ]);
});

test('only where a band begins it has an edge at its side, not where one of many tensors goes', async () => {
  const group = [
    'gradients',
    3,
    GIB,
    '',
    '',
    '',
    '',
    -1,
    [],
    [
      [0, 4 * GIB],
      [2, -GIB / 64]
    ]
  ];
  await shown(
    state({ allocations: [{ ...ALLOCATIONS, bands: [group], peak: 4 * GIB, peak_step: 0 }] })
  );
  const { data, width, height } = drawn.pictures[drawn.pictures.length - 1]!;
  const row = Math.round(height * 0.5);
  const colours = new Set<string>();
  for (let at = 0; at < width; at++) {
    colours.add([...data.slice(4 * (row * width + at), 4 * (row * width + at) + 4)].join(' '));
  }
  expect(colours.size).toBe(1);
});

test('an error that is cut can be read whole, with the keyboard, too', async () => {
  await shown(state({ error: { kind: 'ValueError', message: 'x'.repeat(290), device: null } }));
  const error = document.querySelector<HTMLElement>('.fg-Error')!;
  expect([error.title, error.tabIndex]).toEqual([`ValueError: ${'x'.repeat(290)}`, 0]);
});

test('text of the kernel stays text', async () => {
  await shown(state({ error: { kind: 'ValueError', message: '<img src=x>', device: null } }));
  expect(text('.fg-Error')).toBe('ValueError: <img src=x>');
  expect(document.querySelector('.fg-Panel img')).toBeNull();
});

test('a message of a newer kernel is a sentence', async () => {
  await shown({ version: 99, kind: 'state' });
  expect(text('.fg-Section-why')).toContain("the kernel's is version 99");
});
