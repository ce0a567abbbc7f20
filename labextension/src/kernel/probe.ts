import type { Kernel } from '@jupyterlab/services';

import { ask, evaluate } from './ask';

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
  /** Of all cards, bytes: what they are sold as; people look for 80 GB. */
  memory: number;
  /** What torch says they have; a kernel of an older package does not tell. */
  total?: number;
  /** How many cards; 1 for a single GPU, more for a machine such as dgx-a100. */
  cards: number;
}

const PROBE = `__import__("json").dumps({
  "installed": __import__("importlib.util").util.find_spec("fakegpu_lab") is not None,
  "loaded": "fakegpu_lab.telemetry" in getattr(getattr(getattr(__import__("IPython").get_ipython(),
    "kernel", None), "comm_manager", None), "targets", ())})`.replace(/\n\s*/g, ' ');

/** Look whether a kernel has the package; it runs nothing of the student's, and leaves no trace in the history. */
export async function probe(kernel: Kernel.IKernelConnection): Promise<IFound> {
  const found = (await evaluate(kernel, PROBE)) as Partial<IFound>;
  return { installed: Boolean(found.installed), loaded: Boolean(found.loaded) };
}

/** The GPUs and machines that the package in the kernel knows. */
export async function catalogue(kernel: Kernel.IKernelConnection): Promise<IProfile[]> {
  return ask<IProfile[]>(kernel, { ask: 'profiles' });
}
