import type { Kernel } from '@jupyterlab/services';
import type { PartialJSONObject } from '@lumino/coreutils';

/** What a kernel was found to be. */
export interface IFound {
  /** Whether it can import fakegpu_lab. */
  installed: boolean;
  /** Whether `%load_ext fakegpu_lab` was run in it. */
  loaded: boolean;
}

/** A GPU that can be chosen. */
export interface IProfile {
  id: string;
  name: string;
  architecture: string;
  memory: number;
  /** How many cards; 1 for a single GPU, more for a machine such as dgx-a100. */
  cards: number;
}

const PROBE = `__import__("json").dumps({
  "installed": __import__("importlib.util").util.find_spec("fakegpu_lab") is not None,
  "loaded": "fakegpu_lab.notebook.comms" in __import__("sys").modules})`.replace(/\n\s*/g, ' ');

const CATALOGUE = `(lambda c, json: json.dumps(
  [[g.id, g.name, g.architecture, g.memory_bytes, 1] for g in map(c.gpu, c.catalogue("gpus"))]
  + [[n.id, n.name, "", sum(c.gpu(g.gpu).memory_bytes * g.count for g in n.gpus), sum(g.count for g in n.gpus)]
     for n in map(c.node, c.catalogue("nodes"))]
))(__import__("fakegpu_lab.hardware.catalogue", fromlist=["gpu"]), __import__("json"))`.replace(
  /\n\s*/g,
  ' '
);

/** Look whether a kernel has the package; it runs nothing of the student's, and leaves no trace in the history. */
export async function probe(kernel: Kernel.IKernelConnection): Promise<IFound> {
  const found = (await evaluate(kernel, PROBE)) as Partial<IFound>;
  return { installed: Boolean(found.installed), loaded: Boolean(found.loaded) };
}

/** The GPUs and machines that the package in the kernel knows. */
export async function catalogue(kernel: Kernel.IKernelConnection): Promise<IProfile[]> {
  const rows = (await evaluate(kernel, CATALOGUE)) as [string, string, string, number, number][];
  return rows.map(([id, name, architecture, memory, cards]) => ({
    id,
    name,
    architecture,
    memory,
    cards
  }));
}

async function evaluate(kernel: Kernel.IKernelConnection, expression: string): Promise<unknown> {
  const future = kernel.requestExecute({
    code: '',
    silent: true,
    store_history: false,
    allow_stdin: false,
    stop_on_error: false,
    user_expressions: { told: expression }
  });
  const reply = await future.done;
  const content = reply.content as unknown as { user_expressions?: PartialJSONObject };
  const told = content.user_expressions?.told as
    { status: string; data?: Record<string, string>; evalue?: string } | undefined;
  const shown = told?.data?.['text/plain'];
  if (told?.status !== 'ok' || shown === undefined) {
    throw new Error(told?.evalue ?? 'The kernel did not answer.');
  }
  return JSON.parse(unquoted(shown));
}

/** The text that Python's repr of a string shows. */
export function unquoted(shown: string): string {
  const quote = shown[0];
  if ((quote !== "'" && quote !== '"') || shown[shown.length - 1] !== quote) {
    throw new Error('The kernel answered with something other than text.');
  }
  return shown
    .slice(1, -1)
    .replace(
      /\\(?:x([0-9a-f]{2})|u([0-9a-f]{4})|U([0-9a-f]{8})|(.))/g,
      (
        _all,
        two: string | undefined,
        four: string | undefined,
        eight: string | undefined,
        one: string
      ) => {
        const code = two ?? four ?? eight;
        if (code !== undefined) {
          return String.fromCodePoint(parseInt(code, 16));
        }
        return { n: '\n', t: '\t', r: '\r' }[one] ?? one;
      }
    );
}
