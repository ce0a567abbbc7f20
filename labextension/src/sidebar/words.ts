import type { TranslationBundle } from '@jupyterlab/translation';

import type { Standing } from '../kernel/link';
import { VERSION } from '../telemetry/schema';

/** Why there is nothing to show, and what can be done about it. */
export interface IEmpty {
  why: string;
  /** What to do, in words; empty when there is a button for it. */
  remedy: string;
  /** Whether enabling GPUs is the remedy. */
  enable: boolean;
}

/** The words for a standing; null when there is something to show. */
export function empty(
  standing: Standing | null,
  trans: TranslationBundle,
  told: { version: number | null; where: string }
): IEmpty | null {
  const only = (why: string, remedy = ''): IEmpty => ({ why, remedy, enable: false });
  switch (standing) {
    case 'live':
      return null;
    case null:
      return only(
        trans.__('No notebook is open.'),
        trans.__('Open one, and its GPUs are shown here.')
      );
    case 'starting':
      return only(trans.__('Waiting for the kernel …'));
    case 'no kernel':
      return only(
        trans.__('This notebook has no kernel.'),
        trans.__('Choose one at the top right of the notebook.')
      );
    case 'not python':
      return only(
        trans.__('This kernel is not Python.'),
        trans.__('Simulated GPUs need a Python kernel with PyTorch.')
      );
    case 'not installed':
      return only(
        trans.__('The Python of this kernel does not have fakegpu_lab.'),
        trans.__('Run %pip install fakegpu-lab in a cell, or choose another kernel.')
      );
    case 'not loaded':
    case 'no machine':
      return { why: trans.__('This kernel has no simulated GPU.'), remedy: '', enable: true };
    case 'lost':
      return only(
        trans.__('The kernel does not answer.'),
        trans.__('If it died, restart it from the Kernel menu; if the connection is lost, wait.')
      );
    case 'too new':
      return only(
        trans.__(
          'The fakegpu_lab of this kernel is newer than this sidebar: it tells version %1, and %2 is known here.',
          told.version ?? '?',
          VERSION
        ),
        trans.__('Update fakegpu-lab where JupyterLab runs, and reload the page.')
      );
    case 'not understood':
      return only(
        trans.__('What the kernel tells cannot be read (%1).', told.where),
        trans.__('Install the same version of fakegpu-lab in the kernel and where JupyterLab runs.')
      );
  }
}
