import { ILayoutRestorer, JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { Dialog, ICommandPalette, showDialog, showErrorMessage } from '@jupyterlab/apputils';
import { ILauncher } from '@jupyterlab/launcher';
import { INotebookTracker, NotebookPanel } from '@jupyterlab/notebook';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { IStateDB } from '@jupyterlab/statedb';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';
import type { IDisposable } from '@lumino/disposable';

import { CommandIds } from '../commands';
import { checkIcon, lessonIcon } from '../icon';
import { Painter } from '../painter';
import { Library } from './library';
import { about, check, hint, kernelOf, outlineOf, show } from './notebook';
import { exerciseAt, IExercise, IOutline } from './outline';
import { IShown, LessonsPanel } from './panel';

const ID = 'fakegpu-lab:lessons';

/** After the page stands: how long until the launcher asks for lessons that it has never seen. */
const PATIENCE = 3000;

export const lessonsPlugin: JupyterFrontEndPlugin<void> = {
  id: ID,
  description:
    'Lessons on simulated GPUs: in the launcher and a sidebar, with exercises, hints and progress.',
  autoStart: true,
  requires: [INotebookTracker],
  optional: [ILauncher, ICommandPalette, ILayoutRestorer, ISettingRegistry, IStateDB, ITranslator],
  activate
};

function activate(
  app: JupyterFrontEnd,
  notebooks: INotebookTracker,
  launcher: ILauncher | null,
  palette: ICommandPalette | null,
  restorer: ILayoutRestorer | null,
  registry: ISettingRegistry | null,
  state: IStateDB | null,
  translator: ITranslator | null
): void {
  const trans = (translator ?? nullTranslator).load('fakegpu_lab');
  const { commands, serviceManager } = app;
  const library = new Library(serviceManager, state);
  const run = (id: string, args = {}): void => void commands.execute(id, args);
  const panel = new LessonsPanel(library, trans, {
    list: () => void refresh(),
    open: name => run(CommandIds.openLesson, { name }),
    update: name => run(CommandIds.openLesson, { name, newer: true }),
    startOver: name => run(CommandIds.startOver, { name }),
    check: exercise => run(CommandIds.check, { exercise }),
    checkAll: () => run(CommandIds.checkAll),
    hint: exercise => run(CommandIds.hint, { exercise }),
    show: exercise => {
      if (shown) {
        show(shown.panel, exercise.solution >= 0 ? exercise.solution : exercise.check);
        app.shell.activateById(shown.panel.id);
      }
    }
  });
  panel.id = 'fakegpu-lab-lessons';
  panel.title.icon = lessonIcon;
  panel.title.caption = trans.__('GPU lessons');
  panel.node.setAttribute('role', 'region');
  panel.node.setAttribute('aria-label', trans.__('GPU lessons'));
  app.shell.add(panel, 'left', { rank: 600, type: 'Lessons' });
  restorer?.add(panel, panel.id);

  const refresh = async (): Promise<void> => {
    await library.list().catch(() => undefined); // the panel says why
  };

  // ---------------------------------------------------------------- the open notebook

  let shown: IShown | null = null;
  let could = '';
  let asked = '';
  const painter = new Painter(() => {
    read();
    panel.show_(shown);
  });
  painter.rate = 4;
  const ask = (): void => painter.ask();

  /** Read the notebook's cells, and ask its kernel when there is something new to know. */
  const read = (): void => {
    const current = notebooks.currentWidget;
    const found: IOutline = current ? outlineOf(current) : { lesson: '', exercises: [] };
    if (!current || found.exercises.length === 0) {
      shown = null;
    } else {
      const same = shown?.panel === current ? shown : null;
      shown = {
        panel: current,
        outline: found,
        about: same?.about ?? null,
        hints: same?.hints ?? new Map<string, string[]>(),
        checking: same?.checking ?? false
      };
      const kernel = kernelOf(current);
      // Asked anew when the kernel is another, when it came back, and after each check.
      const key = JSON.stringify([
        current.id,
        kernel?.id,
        restarts,
        found.lesson,
        found.exercises.map(one => [one.state, one.score])
      ]);
      if (kernel && key !== asked) {
        asked = key;
        void learn(current, found.lesson);
      }
    }
    const active = current ? exerciseAt(found, current.content.activeCellIndex)?.id : undefined;
    const now = `${found.lesson} ${found.exercises.length} ${active ?? ''}`;
    if (now !== could) {
      could = now;
      commands.notifyCommandChanged();
    }
  };

  const learn = async (current: NotebookPanel, lesson: string): Promise<void> => {
    try {
      const told = await about(current, lesson);
      if (shown?.panel === current) {
        shown.about = told;
        ask();
      }
    } catch {
      if (shown?.panel === current) {
        shown.about = null; // a kernel without the package: the outline has what the cells say
      }
    }
    await library.look(serviceManager.contents);
  };

  let restarts = 0;
  const watched = new WeakSet<NotebookPanel>();
  const watch = (current: NotebookPanel | null): void => {
    if (current && !watched.has(current)) {
      watched.add(current);
      current.context.ready
        .then(() => {
          current.content.modelContentChanged.connect(ask);
          current.content.activeCellChanged.connect(ask);
          current.sessionContext.kernelChanged.connect(ask);
          current.sessionContext.connectionStatusChanged.connect(ask);
          current.sessionContext.statusChanged.connect((_, status) => {
            if (status === 'restarting' || status === 'autorestarting') {
              restarts += 1;
            }
            if (status === 'idle') {
              ask();
            }
          });
          ask();
        })
        .catch(() => undefined);
    }
    ask();
  };
  notebooks.currentChanged.connect((_, current) => watch(current));
  watch(notebooks.currentWidget);

  // ---------------------------------------------------------------- commands

  const failed = (title: string, reason: unknown): void =>
    void showErrorMessage(title, reason instanceof Error ? reason.message : String(reason));
  const exercise = (args: { [key: string]: unknown }): IExercise | undefined => {
    const current = notebooks.currentWidget;
    if (!current) {
      return undefined;
    }
    const found = outlineOf(current);
    return typeof args.exercise === 'string'
      ? found.exercises.find(one => one.id === args.exercise)
      : exerciseAt(found, current.content.activeCellIndex);
  };
  const checked = async (wanted: (found: IOutline) => IExercise[]): Promise<void> => {
    const current = notebooks.currentWidget;
    if (!current) {
      return;
    }
    read();
    const mine = shown;
    try {
      if (mine) {
        mine.checking = true;
        ask();
      }
      await check(current, wanted);
    } catch (reason) {
      failed(trans.__('The exercise could not be checked'), reason);
    } finally {
      if (shown?.panel === current) {
        shown.checking = false;
      }
      ask();
    }
  };

  commands.addCommand(CommandIds.lessons, {
    label: trans.__('Show the lessons'),
    icon: lessonIcon,
    execute: () => app.shell.activateById(panel.id)
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
        return app.shell.activateById(panel.id);
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
          'Your notebook of %1 is kept as a backup beside it, and you get a fresh one. Points that you have earned stay.',
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
    isVisible: args => typeof args.exercise === 'string' || exercise(args) !== undefined,
    isEnabled: args => exercise(args) !== undefined,
    execute: async args => {
      const { id } = exercise(args) ?? {};
      await checked(found => found.exercises.filter(one => one.id === id));
    }
  });
  commands.addCommand(CommandIds.checkAll, {
    label: trans.__('Check all exercises'),
    isEnabled: () => shown !== null,
    execute: () => checked(found => found.exercises)
  });
  commands.addCommand(CommandIds.hint, {
    label: trans.__('Show a hint for this exercise'),
    isEnabled: args => shown !== null && exercise(args) !== undefined,
    execute: async args => {
      const one = exercise(args);
      const mine = shown;
      if (!one || !mine) {
        return;
      }
      app.shell.activateById(panel.id);
      try {
        const { hints } = await hint(mine.panel, mine.outline.lesson, one.id);
        mine.hints.set(one.id, hints);
        asked = ''; // the kernel knows how many were seen
        ask();
      } catch (reason) {
        failed(trans.__('There is no hint'), reason);
      }
    }
  });
  for (const command of [
    CommandIds.lessons,
    CommandIds.openLesson,
    CommandIds.check,
    CommandIds.checkAll,
    CommandIds.hint
  ]) {
    palette?.addItem({ command, category: trans.__('Simulated GPUs') });
  }

  // ---------------------------------------------------------------- the list, the launcher

  let offered: IDisposable[] = [];
  let titles = '';
  library.changed.connect(() => {
    ask();
    const now = JSON.stringify(
      library.lessons.map(({ name, title, goal }) => ({ name, title, goal }))
    );
    if (now !== titles) {
      titles = now;
      offered.forEach(one => one.dispose());
      offered = library.lessons.flatMap(({ name, title, goal }, rank) =>
        launcher
          ? [
              launcher.add({
                command: CommandIds.openLesson,
                args: { name, title, goal },
                category: trans.__('GPU lessons'),
                rank
              })
            ]
          : []
      );
    }
  });
  const offer = async (): Promise<void> => {
    if (await library.remember()) {
      await library.look(serviceManager.contents);
    } else if (launcher) {
      window.setTimeout(() => void refresh(), PATIENCE);
    }
  };
  void Promise.all([
    app.restored,
    registry?.load(ID).then(loaded => {
      const take = (): void => {
        const { lessonsFolder } = loaded.composite;
        library.folder = typeof lessonsFolder === 'string' ? lessonsFolder.trim() : '';
      };
      loaded.changed.connect(take);
      take();
      return loaded.composite.offerLessons !== false;
    })
  ])
    .then(([, wanted]) => (wanted === false ? undefined : offer()))
    .catch(() => undefined); // without settings, the sidebar asks when it is shown
}
