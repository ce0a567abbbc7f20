/** The exercises of a notebook, read from its cells: pure, so that they can be tested without a notebook. */

/** Under which a check's result stands in its output; see fakegpu_lab/course/checks/result.py. */
export const CHECK = 'application/vnd.fakegpu-lab.check+json';

export type State = 'untried' | 'failed' | 'passed';

/** An exercise: where its cells are, and what its last check said. */
export interface IExercise {
  id: string;
  title: string;
  /** The place of the student's cell; -1 if there is none. */
  solution: number;
  /** The place of the check; -1 if there is none. */
  check: number;
  state: State;
  score: number;
  points: number;
}

/** What a notebook is. */
export interface IOutline {
  /** What `%lesson` names; empty if nothing does. */
  lesson: string;
  exercises: IExercise[];
}

/** A cell, as far as it matters. */
export interface ICell {
  type: string;
  source: string;
  /** What it showed, by type; newest last. */
  outputs: Record<string, unknown>[];
}

/** Read a notebook's cells. */
export function outline(cells: ICell[]): IOutline {
  const found = new Map<string, IExercise>();
  let lesson = '';
  let heading = '';
  cells.forEach((cell, place) => {
    if (cell.type === 'markdown') {
      heading = /^#+\s*Exercise:\s*(.+?)\s*$/m.exec(cell.source)?.[1] ?? heading;
      return;
    }
    if (cell.type !== 'code') {
      return;
    }
    lesson ||= /^\s*%lesson\s+([\w.-]+)/m.exec(cell.source)?.[1] ?? '';
    const named = /^\s*%%(exercise|check)\s+(\S+)/.exec(cell.source);
    if (!named) {
      return;
    }
    const [, kind, id] = named as unknown as [string, string, string];
    const one: IExercise = found.get(id) ?? {
      id,
      title: heading || id.replace(/-/g, ' '),
      solution: -1,
      check: -1,
      state: 'untried',
      score: 0,
      points: 0
    };
    heading = '';
    found.set(id, one);
    if (kind === 'exercise') {
      one.solution = place;
    } else {
      one.check = place;
      Object.assign(one, result(cell.outputs));
    }
  });
  return { lesson, exercises: [...found.values()] };
}

/** What a check said; a record of another version, or none, is as if it was not tried. */
function result(outputs: ICell['outputs']): Partial<IExercise> {
  const told = outputs.map(one => one[CHECK]).filter(one => one !== undefined);
  const record = told[told.length - 1] as Record<string, unknown> | undefined;
  if (typeof record !== 'object' || record === null || record.version !== 1) {
    return {};
  }
  const parts = Array.isArray(record.parts) ? (record.parts as { met?: unknown }[]) : [];
  const passed = parts.length > 0 && parts.every(part => part.met === true);
  return {
    state: record.unsolved === true ? 'untried' : passed ? 'passed' : 'failed',
    score: Number(record.score) || 0,
    points: Number(record.points) || 0
  };
}

/** The exercise that a cell belongs to. */
export function exerciseAt(found: IOutline, place: number): IExercise | undefined {
  return found.exercises.find(one => one.solution === place || one.check === place);
}

/**
 * The cells to run for a check, in order.
 *
 * @param prepared - whether the kernel has run the lesson's first cells; if not, all above are run, too, but no other
 * exercise's check.
 */
export function toRun(
  cells: ICell[],
  found: IOutline,
  wanted: IExercise[],
  prepared: boolean
): number[] {
  const own = new Set(wanted.flatMap(one => [one.solution, one.check]).filter(place => place >= 0));
  if (prepared) {
    return [...own].sort((one, other) => one - other);
  }
  const last = Math.max(...own);
  const checks = new Set(found.exercises.map(one => one.check));
  return cells
    .map((cell, place) => ({ cell, place }))
    .filter(
      ({ cell, place }) =>
        cell.type === 'code' && place <= last && (own.has(place) || !checks.has(place))
    )
    .map(({ place }) => place);
}

/** What a student has done in all lessons, from the text of fakegpu-progress.json: by lesson, solved and points. */
export function progress(text: string): Map<string, { solved: number; earned: number }> {
  const found = new Map<string, { solved: number; earned: number }>();
  try {
    const told = JSON.parse(text) as {
      lessons?: Record<string, { exercises?: Record<string, unknown> }>;
    };
    for (const [name, lesson] of Object.entries(told.lessons ?? {})) {
      const all = Object.values(lesson.exercises ?? {}) as { solved?: unknown; best?: unknown }[];
      found.set(name, {
        solved: all.filter(one => one.solved === true).length,
        earned: all.reduce((sum, one) => sum + (Number(one.best) || 0), 0)
      });
    }
  } catch {
    return new Map();
  }
  return found;
}

/** Points, without needless zeros: 2, 1.5, 0.67. */
export function points(value: number): string {
  return String(Number(value.toFixed(2)));
}
