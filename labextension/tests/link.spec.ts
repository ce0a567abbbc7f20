import { Signal } from '@lumino/signaling';

import { Link, Standing } from '../src/kernel/link';
import { state, update } from './fixtures';

type Listener = ((message: unknown) => void) | null;

/** A comm as JupyterLab's kernels make them. */
class FakeComm {
  onMsg: Listener = null;
  onClose: Listener = null;
  isDisposed = false;
  opened: unknown = null;
  sent: Record<string, unknown>[] = [];
  subshellStarted = Promise.resolve();

  constructor(
    readonly targetName: string,
    readonly commId: string
  ) {}

  open(data: unknown): void {
    this.opened = data ?? {};
  }

  send(data: Record<string, unknown>): void {
    this.sent.push(data);
  }

  close(): void {
    this.isDisposed = true;
  }

  dispose(): void {
    this.isDisposed = true;
  }

  tell(data: unknown): void {
    this.onMsg?.({ content: { data } });
  }
}

class FakeKernel {
  static made = 0;
  id = String(FakeKernel.made++);
  status = 'idle';
  connectionStatus = 'connected';
  supportsSubshells = true;
  comms: FakeComm[] = [];

  constructor(
    public installed = true,
    public loaded = true,
    public language = 'python'
  ) {}

  get info(): Promise<unknown> {
    return Promise.resolve({ language_info: { name: this.language } });
  }

  createComm(target: string): FakeComm {
    const comm = new FakeComm(target, `comm-${this.comms.length}`);
    this.comms.push(comm);
    return comm;
  }

  requestExecute(): unknown {
    const told = `'${JSON.stringify({ installed: this.installed, loaded: this.loaded })}'`;
    const content = { user_expressions: { told: { status: 'ok', data: { 'text/plain': told } } } };
    return { done: Promise.resolve({ content }) };
  }

  get telemetry(): FakeComm {
    return [...this.comms].reverse().find(comm => comm.targetName === 'fakegpu_lab.telemetry')!;
  }

  get control(): FakeComm {
    return [...this.comms].reverse().find(comm => comm.targetName === 'fakegpu_lab.control')!;
  }
}

class FakeContext {
  kernelChanged = new Signal<this, unknown>(this);
  statusChanged = new Signal<this, string>(this);
  connectionStatusChanged = new Signal<this, string>(this);
  iopubMessage = new Signal<this, unknown>(this);
  ready = Promise.resolve();
  hasNoKernel = false;
  session: { kernel: FakeKernel | null } | null;

  constructor(kernel: FakeKernel | null) {
    this.session = { kernel };
  }

  ran(): void {
    const parent = { msg_id: 'x' };
    this.iopubMessage.emit({
      header: { msg_type: 'execute_input' },
      parent_header: parent,
      content: {}
    });
    this.iopubMessage.emit({
      header: { msg_type: 'status' },
      parent_header: parent,
      content: { execution_state: 'idle' }
    });
  }
}

async function settled(): Promise<void> {
  for (let turn = 0; turn < 20; turn++) {
    await Promise.resolve();
  }
}

async function linked(kernel: FakeKernel | null): Promise<{ context: FakeContext; link: Link }> {
  const context = new FakeContext(kernel);
  const link = new Link(context as never);
  await settled();
  return { context, link };
}

test.each<[string, FakeKernel | null, Standing]>([
  ['no kernel', null, 'no kernel'],
  ['R', new FakeKernel(true, true, 'R'), 'not python'],
  ['a kernel without the package', new FakeKernel(false, false), 'not installed'],
  ['a kernel that has not loaded it', new FakeKernel(true, false), 'not loaded']
])('%s: it says so, and opens nothing', async (_, kernel, standing) => {
  const { link } = await linked(kernel);
  expect(link.standing).toBe(standing);
  expect(kernel?.comms ?? []).toEqual([]);
});

test('a cell that loads the package is noticed', async () => {
  const kernel = new FakeKernel(true, false);
  const { context, link } = await linked(kernel);
  kernel.loaded = true;
  context.ran();
  await settled();
  kernel.telemetry.tell(state());
  expect(link.standing).toBe('live');
  expect(kernel.telemetry.opened).toEqual({ acknowledges: true });
});

test('a kernel without subshells is told that nothing will be acknowledged while it is busy', async () => {
  const kernel = new FakeKernel();
  kernel.supportsSubshells = false;
  await linked(kernel);
  expect(kernel.telemetry.opened).toEqual({ acknowledges: false });
});

test('what was drawn is acknowledged, and what was missed is asked for', async () => {
  const kernel = new FakeKernel();
  const { link } = await linked(kernel);
  kernel.telemetry.tell(state());
  kernel.telemetry.tell(update(2));
  link.drawn();
  expect(kernel.control.sent).toEqual([{ reader: kernel.telemetry.commId, ack: 2 }]);
  kernel.telemetry.tell(update(9));
  expect(kernel.control.sent[1]).toEqual({ reader: kernel.telemetry.commId, do: 'state' });
});

test('after a restart nothing of before is shown, and the line is laid anew', async () => {
  const kernel = new FakeKernel();
  const { context, link } = await linked(kernel);
  const old = kernel.telemetry;
  old.tell(state());
  context.statusChanged.emit('restarting');
  expect(link.standing).toBe('starting');
  expect(link.model.devices.size).toBe(0);
  kernel.loaded = false;
  context.statusChanged.emit('idle');
  await settled();
  expect(link.standing).toBe('not loaded');
  old.tell(state());
  expect(link.standing).toBe('not loaded');
});

test('another kernel in the same notebook: its GPUs, and no more of the old ones', async () => {
  const first = new FakeKernel();
  const second = new FakeKernel();
  const { context, link } = await linked(first);
  first.telemetry.tell(state());
  context.session = { kernel: second };
  context.kernelChanged.emit(null);
  await settled();
  expect(first.telemetry.isDisposed).toBe(true);
  expect(link.standing).toBe('starting');
  second.telemetry.tell(state({ spec: 't4' }));
  expect(link.model.spec).toBe('t4');
});

test('a dead connection is told, and when it comes back all is asked for again', async () => {
  const kernel = new FakeKernel();
  const { context, link } = await linked(kernel);
  kernel.telemetry.tell(state());
  kernel.connectionStatus = 'disconnected';
  context.connectionStatusChanged.emit('disconnected');
  expect(link.standing).toBe('lost');
  kernel.connectionStatus = 'connected';
  context.connectionStatusChanged.emit('connected');
  await settled();
  expect(kernel.comms).toHaveLength(4);
  kernel.telemetry.tell(state());
  expect(link.standing).toBe('live');
});

test('a kernel that died is told', async () => {
  const kernel = new FakeKernel();
  const { context, link } = await linked(kernel);
  kernel.telemetry.tell(state());
  kernel.status = 'dead';
  context.statusChanged.emit('dead');
  expect(link.standing).toBe('lost');
});

test('a newer schema, and one that cannot be read, are told apart; what can be read again is shown', async () => {
  const kernel = new FakeKernel();
  const { link } = await linked(kernel);
  kernel.telemetry.tell({ version: 9, devices: 'elsewhere' });
  expect(link.standing).toBe('too new');
  kernel.telemetry.tell({ version: 1, devices: 'elsewhere' });
  expect(link.standing).toBe('not understood');
  kernel.telemetry.tell(state());
  expect(link.standing).toBe('live');
});

test('the package is unloaded: the comm closes, and there is no GPU', async () => {
  const kernel = new FakeKernel();
  const { link } = await linked(kernel);
  kernel.telemetry.tell(state());
  kernel.telemetry.onClose?.(null);
  expect(link.standing).toBe('not loaded');
});

test('two notebooks on two kernels know nothing of each other', async () => {
  const kernels = [new FakeKernel(), new FakeKernel()] as const;
  const [one, other] = [await linked(kernels[0]), await linked(kernels[1])];
  kernels[0].telemetry.tell(state({ spec: 'a100:2' }));
  expect([one.link.standing, other.link.standing]).toEqual(['live', 'starting']);
  one.link.dispose();
  kernels[1].telemetry.tell(state({ spec: 't4' }));
  expect(other.link.model.spec).toBe('t4');
  expect(kernels[0].telemetry.isDisposed).toBe(true);
});
