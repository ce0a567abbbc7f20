import {
  ILabShell,
  ILayoutRestorer,
  JupyterFrontEnd,
  JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { ICommandPalette, IThemeManager, showErrorMessage } from '@jupyterlab/apputils';
import { IConsoleTracker } from '@jupyterlab/console';
import { INotebookTracker } from '@jupyterlab/notebook';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { IStatusBar } from '@jupyterlab/statusbar';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';

import { CommandIds } from './commands';
import { Dashboards } from './dashboard/open';
import { apply, runLine } from './hardware/apply';
import { choose } from './hardware/dialog';
import { gpuIcon } from './icon';
import { Follower } from './kernel/follow';
import { catalogue } from './kernel/probe';
import { lessonsPlugin } from './lessons/plugin';
import { Painter } from './painter';
import { recordingsPlugin } from './recordings/plugin';
import { readSettings } from './settings';
import { GpusPanel, IActions } from './sidebar/panel';
import { StatusItem } from './status';

const ID = 'fakegpu-lab:plugin';

const plugin: JupyterFrontEndPlugin<void> = {
  id: ID,
  description: 'Simulated GPUs of the active notebook: sidebar, status bar, choice of hardware.',
  autoStart: true,
  requires: [INotebookTracker],
  optional: [
    IConsoleTracker,
    ILabShell,
    IStatusBar,
    ICommandPalette,
    ILayoutRestorer,
    ISettingRegistry,
    ITranslator,
    IThemeManager
  ],
  activate
};

function activate(
  app: JupyterFrontEnd,
  notebooks: INotebookTracker,
  consoles: IConsoleTracker | null,
  labShell: ILabShell | null,
  statusBar: IStatusBar | null,
  palette: ICommandPalette | null,
  restorer: ILayoutRestorer | null,
  registry: ISettingRegistry | null,
  translator: ITranslator | null,
  themes: IThemeManager | null
): void {
  const trans = (translator ?? nullTranslator).load('fakegpu_lab');
  const { commands } = app;
  const follower = new Follower(notebooks, consoles);
  labShell?.currentChanged.connect((_, { newValue }) => follower.look(newValue));

  const run = (id: string, args = {}): void => void commands.execute(id, args);
  const actions: IActions = {
    enable: spec => run(CommandIds.enable, { spec }),
    choose: () => run(CommandIds.choose),
    reset: () => run(CommandIds.reset),
    look: slot => run(CommandIds.dashboard, { slot })
  };
  const panel = new GpusPanel(follower, trans, actions);
  const dashboards = new Dashboards(app, labShell, restorer, follower, trans, actions);
  panel.id = 'fakegpu-lab-gpus';
  panel.title.icon = gpuIcon;
  panel.title.caption = trans.__('GPUs');
  panel.node.setAttribute('role', 'region');
  panel.node.setAttribute('aria-label', trans.__('Simulated GPUs'));
  app.shell.add(panel, 'right', { rank: 500, type: 'GPUs' });
  restorer?.add(panel, panel.id);

  const status = new StatusItem(follower, trans, () => run(CommandIds.sidebar));
  statusBar?.registerStatusItem('fakegpu-lab:status', {
    item: status,
    align: 'left',
    rank: 50,
    isActive: () => !status.isHidden
  });

  const painter = new Painter(() => {
    panel.show_();
    status.show_();
    // In a frame of its own, so that neither holds the page up for long.
    requestAnimationFrame(() => {
      dashboards.current?.show_();
      follower.link?.drawn();
    });
  });
  follower.changed.connect(() => painter.ask());
  themes?.themeChanged.connect(() => {
    dashboards.current?.retheme();
    painter.ask();
  });
  painter.ask();

  if (registry) {
    registry
      .load(ID)
      .then(loaded => {
        const take = (): void => {
          const settings = readSettings(loaded.composite);
          painter.rate = settings.updateRate;
          panel.options = dashboards.options = settings;
          status.setHidden(!settings.statusBar);
          painter.ask();
        };
        loaded.changed.connect(take);
        take();
      })
      .catch(() => undefined); // the defaults do
  }

  const hasDocument = (): boolean => follower.document !== null;
  const enabled = (): boolean => follower.link?.standing === 'live';
  const failed = (title: string) => (reason: unknown) =>
    void showErrorMessage(title, reason instanceof Error ? reason.message : String(reason));

  commands.addCommand(CommandIds.sidebar, {
    label: trans.__('Show the GPUs'),
    icon: gpuIcon,
    execute: () => app.shell.activateById(panel.id)
  });
  commands.addCommand(CommandIds.choose, {
    label: trans.__('Choose GPUs …'),
    caption: trans.__('Choose simulated GPUs for this notebook'),
    isEnabled: hasDocument,
    execute: async () => {
      const { document, link } = follower;
      const kernel = link?.kernel;
      if (!document || !kernel) {
        return;
      }
      try {
        const chosen = await choose(await catalogue(kernel), trans);
        if (chosen) {
          await apply(document, chosen, notebooks, consoles);
        }
      } catch (reason) {
        failed(trans.__('The GPUs could not be listed'))(reason);
      }
    }
  });
  commands.addCommand(CommandIds.enable, {
    label: args =>
      typeof args.spec === 'string'
        ? trans.__('Enable %1', args.spec)
        : trans.__('Enable simulated GPUs'),
    isEnabled: hasDocument,
    describedBy: {
      args: {
        type: 'object',
        properties: { spec: { type: 'string', description: 'As %fakegpu takes it, e.g. a100:2' } }
      }
    },
    execute: async args => {
      const spec = typeof args.spec === 'string' ? args.spec : panel.options.spec;
      await apply(follower.document, { spec, memory: '' }, notebooks, consoles);
    }
  });
  commands.addCommand(CommandIds.reset, {
    label: trans.__('Reset the GPUs'),
    caption: trans.__('Start again with the same GPUs: empty memory, counters at 0'),
    isEnabled: enabled,
    execute: () => runLine(follower.document, '%fakegpu reset', notebooks, consoles)
  });
  commands.addCommand(CommandIds.off, {
    label: trans.__('Turn the GPUs off'),
    isEnabled: enabled,
    execute: () => runLine(follower.document, '%fakegpu off', notebooks, consoles)
  });
  follower.changed.connect(() => {
    const now = `${hasDocument()} ${enabled()}`;
    if (now !== could) {
      could = now;
      commands.notifyCommandChanged();
    }
  });
  let could = '';
  const {
    sidebar,
    dashboard,
    choose: hardware,
    enable,
    reset,
    off,
    pause,
    picture,
    csv
  } = CommandIds;
  for (const command of [sidebar, dashboard, hardware, enable, reset, off, pause, picture, csv]) {
    palette?.addItem({ command, category: trans.__('Simulated GPUs') });
  }
}

export default [plugin, lessonsPlugin, recordingsPlugin];
