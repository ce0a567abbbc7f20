import type { ServiceManager, Session } from '@jupyterlab/services';

import { Unanswered } from './ask';

/**
 * Start a Python kernel for a question of ours, in a folder of JupyterLab's files.
 *
 * @param none - the sentence for somebody who has no Python kernel.
 */
export async function startPython(
  { kernelspecs, sessions }: ServiceManager.IManager,
  folder: string,
  none: string
): Promise<Session.ISessionConnection> {
  await kernelspecs.ready;
  const { specs } = kernelspecs;
  const python = Object.values(specs?.kernelspecs ?? {}).filter(one => one?.language === 'python');
  const name = (python.find(one => one?.name === specs?.default) ?? python[0])?.name;
  if (!name) {
    throw new Unanswered(none);
  }
  const unique = `fakegpu-lab-${Math.random().toString(36).slice(2)}`;
  const session = await sessions.startNew({
    name: 'fakegpu-lab',
    path: folder ? `${folder}/${unique}` : unique, // its folder is where the kernel runs
    type: 'console',
    kernel: { name }
  });
  await session.kernel?.info;
  return session;
}
