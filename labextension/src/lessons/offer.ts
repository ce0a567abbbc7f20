import type { ILauncher } from '@jupyterlab/launcher';
import type { TranslationBundle } from '@jupyterlab/translation';
import type { IDisposable } from '@lumino/disposable';

import { CommandIds } from '../commands';
import type { Library } from './library';

/** Keep a card for each lesson in the launcher. */
export function offer(library: Library, launcher: ILauncher, trans: TranslationBundle): void {
  let offered: IDisposable[] = [];
  let titles = '';
  library.changed.connect(() => {
    const lessons = library.lessons.map(({ name, title, goal, track }) => ({
      name,
      title,
      goal,
      track: track ?? ''
    }));
    const now = JSON.stringify(lessons);
    if (now !== titles) {
      titles = now;
      offered.forEach(one => one.dispose());
      offered = lessons.map((args, rank) =>
        launcher.add({
          command: CommandIds.openLesson,
          args,
          category: args.track ? trans.__('GPU lessons · %1', args.track) : trans.__('GPU lessons'),
          rank
        })
      );
    }
  });
}
