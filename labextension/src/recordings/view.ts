import { PathExt } from '@jupyterlab/coreutils';
import { OutputAreaModel, SimplifiedOutputArea } from '@jupyterlab/outputarea';
import type { IRenderMimeRegistry } from '@jupyterlab/rendermime';
import type { Contents, ServiceManager, Session } from '@jupyterlab/services';
import type { TranslationBundle } from '@jupyterlab/translation';
import { Panel, Widget } from '@lumino/widgets';

import { h, say } from '../dom';
import { evaluate } from '../kernel/ask';
import { startPython } from '../kernel/own';

/**
 * A recording of a real card, as `fakegpu_lab.open` shows it in a notebook. A kernel that is started for it, in the
 * file's folder, reads the file and draws; it is ended as soon as that is done, and gives its memory back.
 */
export class RecordingView extends Panel {
  constructor(
    private _services: ServiceManager.IManager,
    rendermime: IRenderMimeRegistry,
    private _contents: Contents.IManager,
    private _trans: TranslationBundle
  ) {
    super();
    this.addClass('fg-Recording');
    this._area = new SimplifiedOutputArea({
      model: new OutputAreaModel({ trusted: true }), // our own package writes it, and escapes what is in the file
      rendermime
    });
    this.addWidget(new Widget({ node: this._status }));
    this.addWidget(this._area);
  }

  /** Read the file, and show it; what was shown before goes. */
  async show_(path: string): Promise<void> {
    const mine = (this._turn += 1);
    await this._end();
    const name = PathExt.basename(path);
    const local = this._contents.localPath(path);
    this._area.model.clear();
    this._say(this._trans.__('Opening %1 …', name));
    try {
      const session = await startPython(
        this._services,
        PathExt.dirname(local),
        this._trans.__('To open a recording takes a Python kernel, and there is none here.')
      );
      if (mine !== this._turn || this.isDisposed) {
        await session.shutdown();
        return;
      }
      this._session = session;
      const { kernel } = session;
      if (!kernel) {
        throw new Error(this._trans.__('The kernel that was to open it has ended; try again.'));
      }
      const there = await evaluate(
        kernel,
        '__import__("json").dumps(__import__("importlib.util").util.find_spec("fakegpu_lab") is not None)'
      );
      if (there !== true) {
        throw new Error(
          this._trans.__(
            'The Python of this kernel does not have fakegpu_lab: pip install fakegpu-lab.'
          )
        );
      }
      const text = JSON.stringify(name); // JSON's text is a literal in Python, too
      this._area.future = kernel.requestExecute({
        code: `from fakegpu_lab.sidebar import recording; recording.show(${text})`,
        store_history: false,
        allow_stdin: false
      });
      const ended = new Promise<never>((_, reject) => {
        kernel.statusChanged.connect((_kernel, status) => {
          if (status === 'dead' || status === 'autorestarting') {
            reject(
              new Error(
                this._trans.__(
                  'The kernel ended while it read the file: this computer may have too little memory.'
                )
              )
            );
          }
        });
      });
      await Promise.race([this._area.future.done, ended]);
      this._say('');
    } catch (reason) {
      if (mine === this._turn) {
        this._say(reason instanceof Error ? reason.message : String(reason));
      }
    } finally {
      if (mine === this._turn) {
        await this._end();
      }
    }
  }

  override dispose(): void {
    this._turn += 1;
    void this._end();
    super.dispose();
  }

  private _say(text: string): void {
    say(this._status, text);
    this._status.hidden = !text;
  }

  private async _end(): Promise<void> {
    const session = this._session;
    this._session = null;
    await session?.shutdown().catch(() => undefined); // it may have ended by itself
  }

  private _area: SimplifiedOutputArea;
  private _status = h('div', { class: 'fg-Recording-status', role: 'status' });
  private _session: Session.ISessionConnection | null = null;
  private _turn = 0;
}
