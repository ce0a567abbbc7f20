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
  expect(drawn.texts).toContain('end of step 1');
  expect(drawn.texts).toContain('peak 2.00 GiB');
  const parameters = document.querySelector('[data-line=parameters]')!;
  expect(parameters.textContent).toBe('parameters 1.00 GiB');
  expect((parameters.lastElementChild as HTMLElement).title).toBe('1,073,741,824 bytes');
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
    'Step 1: 1 lanes over 100 ns. Most time went to aten::mm 50 %.'
  );
  tabs[4]!.click();
  await soon();
  expect(text('[data-part=transfers]')).toContain('host → cuda:0');
  expect(visible()).toEqual(['transfers']);
});

test('every allocation is a band that says its size, shape, line and what called it', async () => {
  await shown(state({ allocations: [ALLOCATIONS] }));
  const figure = document.querySelector<HTMLCanvasElement>('.fg-Bands')!;
  expect(figure.getAttribute('aria-label')).toContain('Step 3. Peak of cuda:0: 7.00 GiB');
  expect(figure.getAttribute('aria-label')).toContain(
    'parameters 1.00 GiB, gradients 2.00 GiB, activations 4.00 GiB'
  );
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
    '4.00 GiB · 1024×1024 float32 · 57.1 % of the peak',
    'In[3] line 5  return gelu(self.up(x))',
    'called from In[3] line 9  loss.backward()',
    'activations, made in forward by aten::gelu in Net.mlp; held for 5.00 µs'
  ]);
  press('ArrowRight');
  expect(said()[0]).toBe('2.00 GiB · 512 float32 · 28.6 % of the peak');
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
      '57.1 %',
      '1',
      '1024×1024 float32, gelu',
      'In[3] line 5  return gelu(self.up(x))'
    ],
    ['others', '3.00 GiB', '42.9 %', '2', '', '']
  ]);
});

test('what is frozen stands still', async () => {
  const panel = await shown(state());
  const freeze = [...document.querySelectorAll('button')].find(
    one => one.textContent === 'Freeze'
  )!;
  freeze.click();
  panel.take(update(2, { devices: [device(0, 7 * GIB)] }));
  await soon();
  expect(text('.fg-Panel-status')).toBe('frozen');
  expect(text('.fg-Card-memory')).toBe('2.00 / 80.00 GiB');
  freeze.click();
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

test('text of the kernel stays text', async () => {
  await shown(state({ error: { kind: 'ValueError', message: '<img src=x>', device: null } }));
  expect(text('.fg-Error')).toBe('ValueError: <img src=x>');
  expect(document.querySelector('.fg-Panel img')).toBeNull();
});

test('a message of a newer kernel is a sentence', async () => {
  await shown({ version: 99, kind: 'state' });
  expect(text('.fg-Section-why')).toContain("the kernel's is version 99");
});
