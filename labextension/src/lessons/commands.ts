import type { JupyterFrontEnd } from '@jupyterlab/application';
import { Dialog, showDialog, showErrorMessage } from '@jupyterlab/apputils';
import type { INotebookTracker } from '@jupyterlab/notebook';
import type { TranslationBundle } from '@jupyterlab/translation';

import { CommandIds } from '../commands';
import { checkIcon, lessonIcon } from '../icon';
import type { LessonFollower } from './follow';
import type { Library } from './library';
import type { IExercise, IOutline } from './outline';

/**
 * Add what can be done with lessons.
 *
 * @param show - shows the sidebar of lessons.
 */
export function addCommands(
  { commands }: JupyterFrontEnd,
  notebooks: INotebookTracker,
  library: Library,
  follower: LessonFollower,
  trans: TranslationBundle,
  show: () => void
): void {
  const failed = (title: string, reason: unknown): void =>
    void showErrorMessage(title, reason instanceof Error ? reason.message : String(reason));
  const checked = async (wanted: (found: IOutline) => IExercise[]): Promise<void> => {
    try {
      await follower.check(wanted);
    } catch (reason) {
      failed(trans.__('The exercise could not be checked'), reason);
    }
  };

  commands.addCommand(CommandIds.lessons, {
    label: trans.__('Show the lessons'),
    icon: lessonIcon,
    execute: show
  });
  commands.addCommand(CommandIds.openLesson, {
    label: args => (typeof args.title === 'string' ? args.title : trans.__('Open a lesson …')),
    caption: args => (typeof args.goal === 'string' ? args.goal : ''),
    icon: lessonIcon,
    describedBy: {
      args: {
        type: 'object',
        properties: {
          name: {
            type: 'string',
            description: 'The lesson, e.g. 00-tour; without it they are shown'
          },
          newer: {
            type: 'boolean',
            description: 'Put a newer edition beside the copy that is there'
          }
        }
      }
    },
    execute: async args => {
      if (typeof args.name !== 'string') {
        return show();
      }
      try {
        const path = await library.fetch(args.name, args.newer === true);
        await commands.execute('docmanager:open', { path, factory: 'Notebook' });
      } catch (reason) {
        failed(trans.__('The lesson could not be opened'), reason);
      }
    }
  });
  commands.addCommand(CommandIds.startOver, {
    label: trans.__('Start a lesson over …'),
    isVisible: args => typeof args.name === 'string',
    execute: async args => {
      const { name } = args;
      if (typeof name !== 'string') {
        return;
      }
      const { button } = await showDialog({
        title: trans.__('Start over?'),
        body: trans.__(
          'You get a fresh copy of %1. Your notebook is kept next to it as a backup, and you keep the points you earned.',
          name
        ),
        buttons: [Dialog.cancelButton(), Dialog.okButton({ label: trans.__('Start over') })]
      });
      if (!button.accept) {
        return;
      }
      try {
        const path = await library.fetch(name);
        const open = notebooks.find(one => one.context.path === path);
        if (open?.context.model.dirty) {
          await open.context.save(); // what is not saved yet belongs into the backup
        }
        await library.startOver(name);
        if (open) {
          await open.context.revert();
        }
        await commands.execute('docmanager:open', { path, factory: 'Notebook' });
      } catch (reason) {
        failed(trans.__('The lesson could not be started over'), reason);
      }
    }
  });
  commands.addCommand(CommandIds.check, {
    label: trans.__('Check this exercise'),
    caption: trans.__('Run your solution and its check'),
    icon: checkIcon,
    isVisible: args =>
      typeof args.exercise === 'string' || follower.exercise(args.exercise) !== undefined,
    isEnabled: args => follower.exercise(args.exercise) !== undefined,
    execute: async args => {
      const { id } = follower.exercise(args.exercise) ?? {};
      await checked(found => found.exercises.filter(one => one.id === id));
    }
  });
  commands.addCommand(CommandIds.checkAll, {
    label: trans.__('Check all exercises'),
    isEnabled: () => follower.shown !== null,
    execute: () => checked(found => found.exercises)
  });
  commands.addCommand(CommandIds.hint, {
    label: trans.__('Show a hint for this exercise'),
    isEnabled: args => follower.shown !== null && follower.exercise(args.exercise) !== undefined,
    execute: async args => {
      const one = follower.exercise(args.exercise);
      if (!one || !follower.shown) {
        return;
      }
      show();
      try {
        await follower.hint(one);
      } catch (reason) {
        failed(trans.__('There is no hint'), reason);
      }
    }
  });
}
