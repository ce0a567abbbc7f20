import type { NotebookPanel } from '@jupyterlab/notebook';
import type { TranslationBundle } from '@jupyterlab/translation';
import type { Message } from '@lumino/messaging';
import { Widget } from '@lumino/widgets';

import { h, say } from '../dom';
import type { ILesson, Library } from './library';
import type { IAbout, IKnown } from './notebook';
import { IExercise, IOutline, points, State } from './outline';
import { tracks } from './tracks';

/** What the panel can have done. */
export interface ILessonActions {
  list(): void;
  open(name: string): void;
  update(name: string): void;
  startOver(name: string): void;
  check(exercise: string): void;
  checkAll(): void;
  hint(exercise: string): void;
  show(exercise: IExercise): void;
}

/** What is shown of the notebook that is open. */
export interface IShown {
  panel: NotebookPanel;
  outline: IOutline;
  about: IAbout | null;
  /** Hints that were asked for, by exercise. */
  hints: Map<string, string[]>;
  /** Whether exercises are being checked. */
  checking: boolean;
}

const MARKS: Record<State, string> = { passed: '✓', failed: '✗', untried: '○' };

/** The sidebar "Lessons": the exercises of the open notebook, and all lessons. */
export class LessonsPanel extends Widget {
  constructor(
    private _library: Library,
    private _trans: TranslationBundle,
    private _actions: ILessonActions
  ) {
    super();
    this.addClass('fg-Lessons');
    this.node.append(this._here, this._all);
    // A button that is drawn anew while it is pressed would not be clicked: kernels answer in that moment, too.
    this.node.addEventListener('pointerdown', () => {
      this._pressed = true;
      const release = (): void => {
        window.removeEventListener('pointerup', release);
        window.removeEventListener('pointercancel', release);
        window.setTimeout(() => {
          this._pressed = false;
          this.show_(this._shown);
        });
      };
      window.addEventListener('pointerup', release);
      window.addEventListener('pointercancel', release);
    });
  }

  /** Show the open notebook and the lessons as they are now. */
  show_(shown: IShown | null): void {
    this._shown = shown;
    if (!this.isVisible || this._pressed) {
      return;
    }
    this._outline(shown);
    this._list();
  }

  protected onAfterShow(_: Message): void {
    if (this._library.lessons.length === 0 && !this._library.asking) {
      this._actions.list();
    }
    this.show_(this._shown);
  }

  private _outline(shown: IShown | null): void {
    const trans = this._trans;
    const exercises = shown?.outline.exercises ?? [];
    this._here.hidden = exercises.length === 0;
    if (!shown || exercises.length === 0) {
      this._drawn = '';
      return;
    }
    const told = JSON.stringify([
      shown.outline,
      shown.about,
      [...shown.hints],
      shown.checking,
      shown.panel.title.label
    ]);
    if (told === this._drawn) {
      return;
    }
    this._drawn = told;
    const kept = focused(this._here);
    const known = new Map((shown.about?.exercises ?? []).map(one => [one.id, one]));
    const passed = exercises.filter(one => one.state === 'passed').length;
    this._here.replaceChildren(
      h('h2', { class: 'fg-Title' }, shown.about?.title ?? shown.panel.title.label),
      h(
        'div',
        { class: 'fg-Lesson-facts', role: 'status' },
        trans.__('%1 of %2 exercises passed', passed, exercises.length)
      ),
      h(
        'ol',
        { class: 'fg-Exercises' },
        ...exercises.map(one => this._exercise(one, known.get(one.id), shown))
      ),
      h(
        'div',
        { class: 'fg-Buttons' },
        this._button(
          trans.__('Check all'),
          () => this._actions.checkAll(),
          'all',
          trans.__('Run and check every exercise of this notebook'),
          shown.checking
        )
      )
    );
    restore(this._here, kept);
  }

  private _exercise(one: IExercise, known: IKnown | undefined, shown: IShown): HTMLElement {
    const trans = this._trans;
    const states: Record<State, string> = {
      passed: trans.__('passed'),
      failed: trans.__('not passed yet'),
      untried: known?.solved
        ? trans.__('solved before, not run yet in this session')
        : trans.__('not tried yet')
    };
    const worth = known?.points ?? one.points;
    const seen = shown.hints.get(one.id) ?? [];
    const title = known?.title ?? one.title;
    return h(
      'li',
      { class: `fg-Exercise fg-mod-${one.state}` },
      h(
        'span',
        { class: 'fg-Exercise-mark', role: 'img', 'aria-label': states[one.state] },
        MARKS[one.state]
      ),
      h(
        'div',
        { class: 'fg-Exercise-body' },
        h(
          'button',
          {
            class: 'fg-Link',
            type: 'button',
            'data-key': `show ${one.id}`,
            title: states[one.state],
            onclick: () => this._actions.show(one)
          },
          title
        ),
        h(
          'div',
          { class: 'fg-Lesson-facts' },
          one.state === 'untried'
            ? `${states.untried}${worth > 0 ? ` · ${trans._n('%1 point', '%1 points', worth)}` : ''}`
            : trans.__('%1 of %2 points', points(one.score), points(worth || one.points))
        ),
        h(
          'div',
          { class: 'fg-Row' },
          this._button(
            trans.__('Check'),
            () => this._actions.check(one.id),
            `check ${one.id}`,
            trans.__('Run and check “%1”', title),
            shown.checking
          ),
          ...(known && known.hints > 0
            ? [
                this._button(
                  seen.length === known.hints
                    ? trans.__('All hints shown')
                    : trans.__(
                        'Hint %1 of %2',
                        Math.min(known.hints, Math.max(known.seen, seen.length) + 1),
                        known.hints
                      ),
                  () => this._actions.hint(one.id),
                  `hint ${one.id}`,
                  trans.__(
                    'Show the next hint for “%1”; your progress notes that you saw it',
                    title
                  ),
                  seen.length === known.hints
                )
              ]
            : [])
        ),
        ...(seen.length > 0
          ? [h('ol', { class: 'fg-Hints' }, ...seen.map(text => h('li', {}, ...words(text))))]
          : [])
      )
    );
  }

  private _list(): void {
    const trans = this._trans;
    const { lessons, fault, asking } = this._library;
    const told = JSON.stringify([lessons, fault, asking]);
    if (told === this._listed) {
      return;
    }
    this._listed = told;
    const kept = focused(this._all);
    const status = h('div', { class: 'fg-Lesson-facts', role: 'status' });
    say(status, asking ? trans.__('Asking the kernel …') : fault);
    this._all.replaceChildren(
      h('h2', { class: 'fg-Title' }, trans.__('Lessons')),
      status,
      ...tracks(lessons).flatMap(([track, several]) => [
        ...(track ? [h('h3', { class: 'fg-Lesson-track' }, track)] : []),
        h('ul', { class: 'fg-Lesson-list' }, ...several.map(lesson => this._lesson(lesson)))
      ]),
      h(
        'div',
        { class: 'fg-Buttons' },
        this._button(
          trans.__('Refresh'),
          () => this._actions.list(),
          'refresh',
          trans.__('Look for lessons again'),
          asking
        )
      )
    );
    restore(this._all, kept);
  }

  private _lesson(lesson: ILesson): HTMLElement {
    const trans = this._trans;
    const { name } = lesson;
    const bar = h('progress', {
      class: 'fg-Progress',
      max: Math.max(1, lesson.exercises),
      value: lesson.solved,
      'aria-label': trans.__('Exercises solved in “%1”', lesson.title)
    });
    return h(
      'li',
      { class: 'fg-Lesson', 'data-lesson': name },
      h('h4', { class: 'fg-Lesson-title' }, lesson.title),
      h('p', { class: 'fg-Lesson-goal' }, lesson.goal),
      h(
        'div',
        { class: 'fg-Lesson-facts' },
        [
          trans.__('%1 min', lesson.minutes),
          ...(lesson.exercises > 0
            ? [
                trans.__('%1 of %2 exercises', lesson.solved, lesson.exercises),
                trans.__('%1 of %2 points', points(lesson.earned), points(lesson.points))
              ]
            : [])
        ].join(' · ')
      ),
      ...(lesson.exercises > 0 ? [bar] : []),
      h(
        'div',
        { class: 'fg-Row' },
        this._button(
          lesson.notebook ? trans.__('Open') : trans.__('Begin'),
          () => this._actions.open(name),
          `open ${name}`,
          lesson.notebook
            ? trans.__('Open “%1”', lesson.title)
            : trans.__('Copy “%1” to your folder, and open it', lesson.title)
        ),
        ...(lesson.newer
          ? [
              this._button(
                trans.__('New edition'),
                () => this._actions.update(name),
                `update ${name}`,
                trans.__(
                  'Put the new edition of “%1” next to yours, which stays as it is',
                  lesson.title
                )
              )
            ]
          : []),
        ...(lesson.notebook
          ? [
              this._button(
                trans.__('Start over …'),
                () => this._actions.startOver(name),
                `over ${name}`,
                trans.__('Start “%1” from scratch; yours is kept as a backup', lesson.title)
              )
            ]
          : [])
      )
    );
  }

  private _button(
    label: string,
    act: () => void,
    key: string,
    says: string,
    disabled = false
  ): HTMLElement {
    return h(
      'button',
      {
        class: 'fg-Small',
        type: 'button',
        title: says,
        'aria-label': `${label}: ${says}`,
        'data-key': key,
        disabled,
        onclick: act
      },
      label
    );
  }

  private _here = h('section', { class: 'fg-Here', hidden: true });
  private _all = h('section', { class: 'fg-All' });
  private _shown: IShown | null = null;
  private _pressed = false;
  private _drawn = '';
  private _listed = '';
}

/** Text in which `backquotes` mark code; all of it stays text. */
export function words(text: string): (Node | string)[] {
  const pieces = text.split('`');
  return pieces.length % 2 === 0
    ? [text]
    : pieces
        .map((piece, place) => (place % 2 === 1 ? h('code', {}, piece) : piece))
        .filter(one => one !== '');
}

function focused(parent: HTMLElement): string | undefined {
  const active = document.activeElement as HTMLElement | null;
  return active && parent.contains(active) ? active.dataset.key : undefined;
}

/** Give the focus back to what had it before it was drawn anew. */
function restore(parent: HTMLElement, key: string | undefined): void {
  if (key !== undefined) {
    parent.querySelector<HTMLElement>(`[data-key="${CSS.escape(key)}"]`)?.focus();
  }
}
