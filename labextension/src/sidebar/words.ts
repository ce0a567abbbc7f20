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
      return only(trans.__('No notebook is open.'), trans.__('Open one to see its GPUs here.'));
    case 'starting':
      return only(trans.__('Waiting for the kernel …'));
    case 'no kernel':
      return only(
        trans.__('This notebook has no kernel.'),
        trans.__('Choose one at the top right of the notebook.')
      );
    case 'not python':
      return only(
        trans.__('This kernel does not run Python.'),
        trans.__('Simulated GPUs need a Python kernel with PyTorch.')
      );
    case 'not installed':
      return only(
        trans.__('This kernel’s Python does not have fakegpu_lab.'),
        trans.__('Run %pip install fakegpu-lab in a cell, or choose another kernel.')
      );
    case 'not loaded':
    case 'no machine':
      return { why: trans.__('This kernel has no simulated GPU.'), remedy: '', enable: true };
    case 'lost':
      return only(
        trans.__('The kernel is not answering.'),
        trans.__('If it died, restart it from the Kernel menu; if the connection is lost, wait.')
      );
    case 'too new':
      return only(
        trans.__(
          'This kernel’s fakegpu_lab is newer than this sidebar: it sends version %1, and the sidebar understands %2.',
          told.version ?? '?',
          VERSION
        ),
        trans.__('Update fakegpu-lab where JupyterLab runs, and reload the page.')
      );
    case 'not understood':
      return only(
        trans.__('The sidebar cannot read what the kernel sends (%1).', told.where),
        trans.__('Install the same version of fakegpu-lab in the kernel and where JupyterLab runs.')
      );
  }
}
