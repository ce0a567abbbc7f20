import { ILayoutRestorer, JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ICommandPalette } from '@jupyterlab/apputils';
import { ILauncher } from '@jupyterlab/launcher';
import { INotebookTracker } from '@jupyterlab/notebook';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { IStateDB } from '@jupyterlab/statedb';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';

import { CommandIds } from '../commands';
import { lessonIcon } from '../icon';
import { Painter } from '../painter';
import { addCommands } from './commands';
import { LessonFollower } from './follow';
import { Library } from './library';
import { show } from './notebook';
import { offer } from './offer';
import { LessonsPanel } from './panel';

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
  const follower = new LessonFollower(notebooks, library, serviceManager.contents);
  const refresh = async (): Promise<void> => {
    await library.list().catch(() => undefined); // the panel says why
  };
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
      const { shown } = follower;
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

  const painter = new Painter(() => {
    follower.read();
    panel.show_(follower.shown);
  });
  painter.rate = 4;
  const ask = (): void => painter.ask();
  follower.changed.connect(ask);
  follower.turned.connect(() => commands.notifyCommandChanged());
  library.changed.connect(ask);
  ask();

  addCommands(app, notebooks, library, follower, trans, () => app.shell.activateById(panel.id));
  for (const command of [
    CommandIds.lessons,
    CommandIds.openLesson,
    CommandIds.check,
    CommandIds.checkAll,
    CommandIds.hint
  ]) {
    palette?.addItem({ command, category: trans.__('Simulated GPUs') });
  }

  if (launcher) {
    offer(library, launcher, trans);
  }
  const begin = async (): Promise<void> => {
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
    .then(([, wanted]) => (wanted === false ? undefined : begin()))
    .catch(() => undefined); // without settings, the sidebar asks when it is shown
}
