import type { ISessionContext } from '@jupyterlab/apputils';
import type { Kernel, KernelMessage } from '@jupyterlab/services';
import type { JSONObject } from '@lumino/coreutils';
import type { IDisposable } from '@lumino/disposable';
import { ISignal, Signal } from '@lumino/signaling';

import { Model } from '../telemetry/model';
import { parse } from '../telemetry/read';
import { Fault } from '../telemetry/schema';
import { IFound, probe } from './probe';

const TELEMETRY = 'fakegpu_lab.telemetry';
const CONTROL = 'fakegpu_lab.control';

/** Messages that may come between two acknowledgements; the kernel waits after 4. */
const UNSAID = 2;

/** Why there is nothing to show; `live` when there is. */
export type Standing =
  | 'starting'
  | 'no kernel'
  | 'not python'
  | 'not installed'
  | 'not loaded'
  | 'not understood'
  | 'too new'
  | 'lost'
  | 'no machine'
  | 'live';

/**
 * The line to one notebook's or console's kernel: opens the comms, takes in what is told, and begins anew when the
 * kernel is another one, was restarted, or comes back.
 */
export class Link implements IDisposable {
  constructor(readonly context: ISessionContext) {
    context.kernelChanged.connect(this._begin, this);
    context.statusChanged.connect(this._status, this);
    context.connectionStatusChanged.connect(this._connection, this);
    context.iopubMessage.connect(this._iopub, this);
    this._begin();
  }

  /** Emitted when anything that can be seen has changed. */
  get changed(): ISignal<this, void> {
    return this._changed;
  }

  get model(): Model {
    return this._model;
  }

  get isDisposed(): boolean {
    return this._disposed;
  }

  get kernel(): Kernel.IKernelConnection | null {
    return this.context.session?.kernel ?? null;
  }

  /** What can be shown, or why nothing can. */
  get standing(): Standing {
    const { kernel } = this;
    if (!kernel || this.context.hasNoKernel) {
      return this._beginning ? 'starting' : 'no kernel';
    }
    if (kernel.connectionStatus === 'disconnected' || kernel.status === 'dead') {
      return 'lost';
    }
    if (this._fault) {
      return this._fault.newer ? 'too new' : 'not understood';
    }
    if (this._model.heard) {
      return this._model.enabled ? 'live' : 'no machine';
    }
    if (this._language !== '' && this._language !== 'python') {
      return 'not python';
    }
    if (!this._found) {
      return 'starting';
    }
    if (!this._found.installed) {
      return 'not installed';
    }
    return this._found.loaded ? 'starting' : 'not loaded';
  }

  /** Why messages could not be understood. */
  get fault(): Fault | null {
    return this._fault;
  }

  /** Say that all up to now was drawn: the kernel sends no more to who does not. */
  drawn(): void {
    const { seq } = this._model;
    if (seq - this._acknowledged >= UNSAID) {
      this._acknowledged = seq;
      this._tell({ ack: seq });
    }
  }

  dispose(): void {
    if (this._disposed) {
      return;
    }
    this._disposed = true;
    this._hangUp();
    Signal.clearData(this);
  }

  private _begin(): void {
    this._hangUp();
    this._model = new Model();
    this._fault = null;
    this._found = null;
    this._language = '';
    this._beginning = true;
    this._changed.emit();
    const attempt = ++this._attempt;
    void this._find(attempt);
  }

  /** Find out what the kernel is, and open the comms if it has them. */
  private async _find(attempt: number): Promise<void> {
    try {
      await this.context.ready;
      const { kernel } = this;
      if (!kernel || attempt !== this._attempt || this._disposed) {
        return;
      }
      const info = await kernel.info;
      this._language = info.language_info.name.toLowerCase();
      if (this._language === 'python' && attempt === this._attempt) {
        await this._look(kernel, attempt);
      }
    } catch {
      // A kernel that went away meanwhile: `kernelChanged` or the status begins anew.
    } finally {
      if (attempt === this._attempt && !this._disposed) {
        this._beginning = false;
        this._changed.emit();
      }
    }
  }

  private async _look(kernel: Kernel.IKernelConnection, attempt: number): Promise<void> {
    const found = await probe(kernel);
    if (attempt !== this._attempt || this._disposed) {
      return;
    }
    this._found = found;
    if (found.loaded && !this._telemetry) {
      await this._dial(kernel, attempt);
    }
    this._changed.emit();
  }

  private async _dial(kernel: Kernel.IKernelConnection, attempt: number): Promise<void> {
    const apart = subshells(kernel);
    const control = kernel.createComm(CONTROL);
    const telemetry = kernel.createComm(TELEMETRY);
    this._control = control;
    this._telemetry = telemetry;
    this._acknowledged = 0;
    telemetry.onMsg = message => this._hear(telemetry, message);
    telemetry.onClose = () => this._closed(telemetry);
    if (apart) {
      await Promise.all([started(control), started(telemetry)]);
    }
    if (attempt !== this._attempt || this._disposed || telemetry.isDisposed) {
      return;
    }
    control.open();
    // Without a subshell nothing can be acknowledged while a cell runs; then the kernel sends little enough anyway.
    telemetry.open({ acknowledges: apart });
  }

  private _hear(comm: Kernel.IComm, message: KernelMessage.ICommMsgMsg): void {
    if (comm !== this._telemetry) {
      return;
    }
    const told = parse(message.content.data);
    if (told instanceof Fault) {
      this._fault = told;
    } else {
      this._fault = null;
      if (this._model.take(told)) {
        this._tell({ do: 'state' });
      }
    }
    this._changed.emit();
  }

  private _tell(what: JSONObject): void {
    const { _control: control, _telemetry: telemetry, kernel } = this;
    if (!control || !telemetry || control.isDisposed || !kernel || kernel.status === 'dead') {
      return;
    }
    control.send({ reader: telemetry.commId, ...what });
  }

  private _closed(comm: Kernel.IComm): void {
    if (comm === this._telemetry) {
      this._telemetry = null;
      this._model = new Model();
      if (this._found) {
        this._found = { ...this._found, loaded: false };
      }
      this._changed.emit();
    }
  }

  private _hangUp(): void {
    const comms = [this._telemetry, this._control];
    this._telemetry = this._control = null;
    for (const comm of comms) {
      if (comm && !comm.isDisposed) {
        try {
          comm.close();
        } catch {
          comm.dispose();
        }
      }
    }
  }

  private _status(_: ISessionContext, status: Kernel.Status): void {
    if (status === 'restarting' || status === 'autorestarting' || status === 'terminating') {
      this._restarted = true;
      this._attempt += 1;
      this._telemetry?.dispose();
      this._control?.dispose();
      this._telemetry = this._control = null;
      this._model = new Model();
      this._found = null;
      this._changed.emit();
    } else if (this._restarted && status === 'idle') {
      this._restarted = false;
      this._begin();
    } else if (status === 'dead') {
      this._changed.emit();
    }
  }

  private _connection(_: ISessionContext, status: Kernel.ConnectionStatus): void {
    if (status === 'connected' && this._away) {
      this._away = false;
      this._begin();
    } else if (status !== 'connected') {
      this._away = true;
      this._changed.emit();
    }
  }

  /** After each cell of a kernel that had nothing to tell, look again: that cell may have loaded the package. */
  private _iopub(_: ISessionContext, message: KernelMessage.IMessage): void {
    if (this._telemetry || this._language !== 'python') {
      return;
    }
    if (message.header.msg_type === 'execute_input') {
      this._ran = (message.parent_header as KernelMessage.IHeader).msg_id;
    } else if (message.header.msg_type === 'status' && this._ran !== '') {
      const { execution_state: state } = message.content as { execution_state: string };
      if (
        state === 'idle' &&
        (message.parent_header as KernelMessage.IHeader).msg_id === this._ran
      ) {
        this._ran = '';
        const { kernel } = this;
        if (kernel) {
          void this._look(kernel, this._attempt).catch(() => undefined);
        }
      }
    }
  }

  private _model = new Model();
  private _fault: Fault | null = null;
  private _found: IFound | null = null;
  private _language = '';
  private _telemetry: Kernel.IComm | null = null;
  private _control: Kernel.IComm | null = null;
  private _acknowledged = 0;
  private _attempt = 0;
  private _beginning = false;
  private _restarted = false;
  private _away = false;
  private _ran = '';
  private _disposed = false;
  private _changed = new Signal<this, void>(this);
}

/** Whether comms of this kernel have subshells; JupyterLab before 4.4 has none, and no such property. */
function subshells(kernel: Kernel.IKernelConnection): boolean {
  return (kernel as { supportsSubshells?: boolean }).supportsSubshells ?? false;
}

/** When a comm's subshell is there; JupyterLab has it, its interface does not name it. */
function started(comm: Kernel.IComm): Promise<void> {
  return (comm as { subshellStarted?: Promise<void> }).subshellStarted ?? Promise.resolve();
}
