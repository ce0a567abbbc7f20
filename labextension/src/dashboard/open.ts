import { ILayoutRestorer, ILabShell, JupyterFrontEnd } from '@jupyterlab/application';
import { WidgetTracker } from '@jupyterlab/apputils';
import type { TranslationBundle } from '@jupyterlab/translation';

import { CommandIds } from '../commands';
import { gpuIcon } from '../icon';
import type { Follower } from '../kernel/follow';
import type { IActions } from '../sidebar/panel';
import type { Dashboard, IDashboardOptions } from './dashboard';
import { IZoom, zoomOf } from '../views/view';

/** Keeps the one dashboard: opens it beside the notebook, and again after a reload. */
export class Dashboards {
  constructor(
    private _app: JupyterFrontEnd,
    private _labShell: ILabShell | null,
    restorer: ILayoutRestorer | null,
    private _follower: Follower,
    private _trans: TranslationBundle,
    private _actions: IActions
  ) {
    const { commands } = _app;
    commands.addCommand(CommandIds.dashboard, {
      label: _trans.__('Show the GPU dashboard'),
      caption: _trans.__('Memory, timeline, transfers and collectives, next to the notebook'),
      icon: gpuIcon,
      describedBy: {
        args: {
          type: 'object',
          properties: {
            slot: { type: 'number', description: 'The index of the GPU; -1 for all' },
            zoom: {
              type: 'object',
              description: 'What a dashboard that is restored zooms to: kernel, epoch and range, ns'
            }
          }
        }
      },
      execute: async args => {
        const { slot, zoom } = args;
        return this._open(typeof slot === 'number' ? slot : null, zoomOf(zoom));
      }
    });
    const isEnabled = (): boolean => this.current !== null;
    commands.addCommand(CommandIds.pause, {
      label: _trans.__('Pause or resume the GPU dashboard'),
      isEnabled,
      execute: () => this.current?.pause()
    });
    commands.addCommand(CommandIds.picture, {
      label: _trans.__('Save the GPU dashboard as PNG'),
      isEnabled,
      execute: () => this.current?.savePicture()
    });
    commands.addCommand(CommandIds.csv, {
      label: _trans.__('Save the GPU memory as CSV'),
      isEnabled,
      execute: () => this.current?.saveCsv('memory')
    });
    if (restorer) {
      void restorer.restore(this._tracker, {
        command: CommandIds.dashboard,
        args: ({ slot, zoom }) => ({ slot, zoom: zoom && { ...zoom, range: [...zoom.range] } }),
        name: () => 'one'
      });
    }
  }

  /** What it shows and leaves out. */
  set options(options: IDashboardOptions) {
    this._options = options;
    if (this.current) {
      this.current.options = options;
    }
  }

  /** The dashboard; null while there is none. */
  get current(): Dashboard | null {
    return this._made && !this._made.isDisposed ? this._made : null;
  }

  private async _open(slot: number | null, zoom: IZoom | null): Promise<Dashboard> {
    let made = this.current;
    if (!made) {
      // Its code is fetched when it is wanted first.
      const { Dashboard } = await import('./dashboard');
      made = this.current ?? new Dashboard(this._follower, this._trans, this._actions);
    }
    if (made !== this._made) {
      this._made = made;
      made.id = 'fakegpu-lab-dashboard';
      made.title.label = this._trans.__('GPU dashboard');
      made.title.icon = gpuIcon;
      made.title.closable = true;
      if (this._options) {
        made.options = this._options;
      }
      if (slot !== null) {
        made.choose(slot);
      }
      if (zoom) {
        made.awaitZoom(zoom);
      }
      const shown = made;
      made.chosen.connect(() => void this._tracker.save(shown));
      made.disposed.connect(() => this._app.commands.notifyCommandChanged());
      await this._tracker.add(made);
    } else if (slot !== null) {
      made.choose(slot);
    }
    if (!made.isAttached) {
      // Beside the notebook, so that both are seen; Notebook 7 has room for it below.
      if (this._labShell) {
        this._app.shell.add(made, 'main', { mode: 'split-right', type: 'GPUs' });
      } else {
        this._app.shell.add(made, 'down', { type: 'GPUs' });
      }
    }
    this._app.shell.activateById(made.id);
    made.show_();
    this._app.commands.notifyCommandChanged();
    return made;
  }

  private _made: Dashboard | null = null;
  private _options: IDashboardOptions | null = null;
  private _tracker = new WidgetTracker<Dashboard>({ namespace: 'fakegpu-lab-dashboard' });
}
