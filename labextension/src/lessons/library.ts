import type { Contents, Kernel, ServiceManager, Session } from '@jupyterlab/services';
import type { IStateDB } from '@jupyterlab/statedb';
import type { ReadonlyJSONObject, ReadonlyJSONValue } from '@lumino/coreutils';
import { ISignal, Signal } from '@lumino/signaling';

import { ask, Unanswered } from '../kernel/ask';
import { startPython } from '../kernel/own';
import { progress } from './outline';

/** A lesson, as fakegpu_lab tells it, with the student's copy and progress. */
export interface ILesson {
  name: string;
  title: string;
  goal: string;
  minutes: number;
  /** Lessons of one track stand together; a kernel of an older package does not tell. */
  track?: string;
  points: number;
  exercises: number;
  solved: number;
  earned: number;
  /** The student's newest copy, from the folder of the lessons; empty if there is none. */
  notebook: string;
  /** Whether there is a newer edition than that copy. */
  newer: boolean;
}

interface IListed {
  folder: string;
  lessons: ILesson[];
}

const KEY = 'fakegpu-lab:lessons';
const PROGRESS = 'fakegpu-progress.json';

/** How long the kernel that answers stays for another question. */
const LINGER = 20_000;

/**
 * The lessons and the student's copies. Questions go to a kernel that is started for them in the folder that JupyterLab
 * shows, and ended soon after: no notebook is disturbed, and no server needs an endpoint.
 */
export class Library {
  constructor(
    private _services: ServiceManager.IManager,
    private _state: IStateDB | null
  ) {}

  /** Where the lessons are; empty: where they are found. */
  folder = '';

  /** Emitted when the list, or what was done, has changed. */
  get changed(): ISignal<this, void> {
    return this._changed;
  }

  get lessons(): ILesson[] {
    return this._listed?.lessons ?? [];
  }

  /** Why there are none; empty if there are, or nobody has asked. */
  get fault(): string {
    return this._fault;
  }

  get asking(): boolean {
    return this._asking > 0;
  }

  /** What was listed last, in another session of this browser. */
  async remember(): Promise<boolean> {
    const kept = (await this._state?.fetch(KEY)) as IListed | undefined;
    if (kept && Array.isArray(kept.lessons) && !this._listed) {
      this._listed = kept;
      this._changed.emit();
    }
    return this.lessons.length > 0;
  }

  /** Ask for all lessons. */
  async list(): Promise<void> {
    await this._ask<IListed>({ ask: 'lessons', folder: this.folder }, listed => {
      this._listed = listed;
      void this._state?.save(KEY, listed as unknown as ReadonlyJSONValue);
    });
  }

  /** Copy a lesson if it is not there, and return its notebook's path. */
  async fetch(name: string, newer = false): Promise<string> {
    const folder = await this._place();
    const made = await this._ask<{ notebook: string }>({ ask: 'fetch', name, folder, newer });
    await this.list();
    return join(folder, made.notebook);
  }

  /** Give a lesson a fresh notebook; returns the path of the old one's backup. */
  async startOver(name: string): Promise<string> {
    const folder = await this._place();
    const made = await this._ask<{ backup: string }>({ ask: 'start over', name, folder });
    return join(folder, made.backup);
  }

  /** Read what the student has done; it is a file beside the lessons, which kernels write. */
  async look(contents: Contents.IManager): Promise<void> {
    const listed = this._listed;
    if (!listed) {
      return;
    }
    try {
      const folder = listed.folder === '.' ? '' : listed.folder;
      const there = await contents.get(folder, { content: true });
      const items = there.content as Contents.IModel[];
      if (!items.some(one => one.name === PROGRESS)) {
        return;
      }
      const file = await contents.get(join(folder, PROGRESS), {
        type: 'file',
        format: 'text',
        content: true
      });
      const done = progress(String(file.content));
      this._listed = {
        ...listed,
        lessons: listed.lessons.map(lesson => ({ ...lesson, ...done.get(lesson.name) }))
      };
      this._changed.emit();
    } catch {
      // No such folder yet: nothing was done.
    }
  }

  private async _place(): Promise<string> {
    if (!this._listed) {
      await this.list();
    }
    if (!this._listed) {
      throw new Unanswered(this._fault);
    }
    return this._listed.folder;
  }

  private async _ask<T>(question: ReadonlyJSONObject, take?: (told: T) => void): Promise<T> {
    this._asking += 1;
    this._changed.emit();
    try {
      const told = await ask<T>(await this._kernel(), question);
      this._fault = '';
      take?.(told);
      return told;
    } catch (reason) {
      this._fault = reason instanceof Error ? reason.message : String(reason);
      throw reason;
    } finally {
      this._asking -= 1;
      window.clearTimeout(this._timer);
      this._timer = window.setTimeout(() => this._end(), LINGER);
      this._changed.emit();
    }
  }

  private async _kernel(): Promise<Kernel.IKernelConnection> {
    this._session ??= this._start();
    try {
      const session = await this._session;
      if (!session.kernel || session.isDisposed || session.kernel.status === 'dead') {
        throw new Unanswered('The kernel that was asked for the lessons has ended; try again.');
      }
      return session.kernel;
    } catch (reason) {
      this._session = null;
      throw reason;
    }
  }

  private _start(): Promise<Session.ISessionConnection> {
    return startPython(
      this._services,
      '',
      'The lessons need a Python kernel, and there is none here.'
    );
  }

  private _end(): void {
    if (this._asking === 0) {
      const session = this._session;
      this._session = null;
      void session?.then(one => one.shutdown()).catch(() => undefined);
    }
  }

  private _listed: IListed | null = null;
  private _fault = '';
  private _asking = 0;
  private _timer = 0;
  private _session: Promise<Session.ISessionConnection> | null = null;
  private _changed = new Signal<this, void>(this);
}

function join(folder: string, path: string): string {
  return folder === '' || folder === '.' ? path : `${folder}/${path}`;
}
