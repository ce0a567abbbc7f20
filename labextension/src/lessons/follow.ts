import type { INotebookTracker, NotebookPanel } from '@jupyterlab/notebook';
import type { Contents } from '@jupyterlab/services';
import { ISignal, Signal } from '@lumino/signaling';

import type { Library } from './library';
import { about, check, hint, kernelOf, outlineOf } from './notebook';
import { exerciseAt, IExercise, IOutline } from './outline';
import type { IShown } from './panel';

/** Follows the notebook that was active last: its exercises, and what its kernel knows of them. */
export class LessonFollower {
  constructor(
    private _notebooks: INotebookTracker,
    private _library: Library,
    private _contents: Contents.IManager
  ) {
    _notebooks.currentChanged.connect((_, current) => this._watch(current));
    this._watch(_notebooks.currentWidget);
  }

  /** Emitted when the notebook may be another than was read. */
  get changed(): ISignal<this, void> {
    return this._changed;
  }

  /** Emitted when another lesson or exercise is the active one. */
  get turned(): ISignal<this, void> {
    return this._turned;
  }

  /** The notebook as it was read last; null if it has no exercises. */
  get shown(): IShown | null {
    return this._shown;
  }

  /** The exercise of this id, or without one the active cell's. */
  exercise(id: unknown): IExercise | undefined {
    const current = this._notebooks.currentWidget;
    if (!current) {
      return undefined;
    }
    const found = outlineOf(current);
    return typeof id === 'string'
      ? found.exercises.find(one => one.id === id)
      : exerciseAt(found, current.content.activeCellIndex);
  }

  /** Read the notebook's cells, and ask its kernel when there is something new to know. */
  read(): void {
    const current = this._notebooks.currentWidget;
    const found: IOutline = current ? outlineOf(current) : { lesson: '', exercises: [] };
    if (!current || found.exercises.length === 0) {
      this._shown = null;
    } else {
      const same = this._shown?.panel === current ? this._shown : null;
      this._shown = {
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
        this._restarts,
        found.lesson,
        found.exercises.map(one => [one.state, one.score])
      ]);
      if (kernel && key !== this._asked) {
        this._asked = key;
        void this._learn(current, found.lesson);
      }
    }
    const active = current ? exerciseAt(found, current.content.activeCellIndex)?.id : undefined;
    const now = `${found.lesson} ${found.exercises.length} ${active ?? ''}`;
    if (now !== this._active) {
      this._active = now;
      this._turned.emit();
    }
  }

  /** Run what checks these exercises. */
  async check(wanted: (found: IOutline) => IExercise[]): Promise<void> {
    const current = this._notebooks.currentWidget;
    if (!current) {
      return;
    }
    this.read();
    const mine = this._shown;
    try {
      if (mine) {
        mine.checking = true;
        this._changed.emit();
      }
      await check(current, wanted);
    } finally {
      if (this._shown?.panel === current) {
        this._shown.checking = false;
      }
      this._changed.emit();
    }
  }

  /** Show the next hint for an exercise. */
  async hint({ id }: IExercise): Promise<void> {
    const mine = this._shown;
    if (mine) {
      const { hints } = await hint(mine.panel, mine.outline.lesson, id);
      mine.hints.set(id, hints);
      this._asked = ''; // the kernel knows how many were seen
      this._changed.emit();
    }
  }

  private async _learn(current: NotebookPanel, lesson: string): Promise<void> {
    try {
      const told = await about(current, lesson);
      if (this._shown?.panel === current) {
        this._shown.about = told;
        this._changed.emit();
      }
    } catch {
      if (this._shown?.panel === current) {
        this._shown.about = null; // a kernel without the package: the outline has what the cells say
      }
    }
    await this._library.look(this._contents);
  }

  private _watch(current: NotebookPanel | null): void {
    if (current && !this._watched.has(current)) {
      this._watched.add(current);
      const say = (): void => this._changed.emit();
      current.context.ready
        .then(() => {
          current.content.modelContentChanged.connect(say);
          current.content.activeCellChanged.connect(say);
          current.sessionContext.kernelChanged.connect(say);
          current.sessionContext.connectionStatusChanged.connect(say);
          current.sessionContext.statusChanged.connect((_, status) => {
            if (status === 'restarting' || status === 'autorestarting') {
              this._restarts += 1;
            }
            if (status === 'idle') {
              say();
            }
          });
          say();
        })
        .catch(() => undefined);
    }
    this._changed.emit();
  }

  private _shown: IShown | null = null;
  /** The lesson and the exercise that are active, in a word. */
  private _active = '';
  /** What the kernel was asked of last. */
  private _asked = '';
  private _restarts = 0;
  private _watched = new WeakSet<NotebookPanel>();
  private _changed = new Signal<this, void>(this);
  private _turned = new Signal<this, void>(this);
}
