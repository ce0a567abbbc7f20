import { NotebookActions, NotebookPanel } from '@jupyterlab/notebook';
import type { IOutput } from '@jupyterlab/nbformat';
import type { Kernel } from '@jupyterlab/services';

import { ask } from '../kernel/ask';
import { ICell, IExercise, IOutline, outline, toRun } from './outline';

/** What the kernel knows of an exercise. */
export interface IKnown {
  id: string;
  title: string;
  points: number;
  hints: number;
  /** Hints that were looked at. */
  seen: number;
  best: number;
  attempts: number;
  /** Whether it was solved once, in this notebook or before. */
  solved: boolean;
}

/** What the kernel knows of the lesson that a notebook is. */
export interface IAbout {
  title: string;
  goal: string;
  /** Whether this kernel has run the lesson's first cells. */
  loaded: boolean;
  exercises: IKnown[];
}

/** A notebook's cells, as `outline` reads them. */
export function cellsOf(panel: NotebookPanel): ICell[] {
  const { model } = panel.content;
  if (!model) {
    return [];
  }
  return model.sharedModel.cells.map(cell => {
    const type = cell.cell_type;
    const source = cell.getSource();
    const outputs =
      type === 'code' && /^\s*%%check\s/.test(source)
        ? ((cell.toJSON() as { outputs?: IOutput[] }).outputs ?? []).map(
            one => (one.data ?? {}) as Record<string, unknown>
          )
        : [];
    return { type, source, outputs };
  });
}

export function outlineOf(panel: NotebookPanel): IOutline {
  return outline(cellsOf(panel));
}

/** Its kernel, if there is one that answers. */
export function kernelOf(panel: NotebookPanel): Kernel.IKernelConnection | null {
  const kernel = panel.sessionContext.session?.kernel ?? null;
  return kernel && kernel.status !== 'dead' && kernel.connectionStatus === 'connected'
    ? kernel
    : null;
}

/** Ask the notebook's kernel what it knows of the lesson. */
export async function about(panel: NotebookPanel, lesson: string): Promise<IAbout | null> {
  const kernel = kernelOf(panel);
  return kernel && lesson !== ''
    ? ask<IAbout>(kernel, { ask: 'notebook', name: lesson, folder: '.' })
    : null;
}

/** The hints of an exercise up to the next one; it is noted in the student's progress. */
export async function hint(
  panel: NotebookPanel,
  lesson: string,
  exercise: string
): Promise<{ hints: string[]; left: number }> {
  const kernel = kernelOf(panel);
  if (!kernel) {
    throw new Error('This notebook has no kernel: choose one at the top right.');
  }
  return ask(kernel, { ask: 'hint', name: lesson, exercise, folder: '.' });
}

/** Run what checks these exercises: one cell after the other, whatever becomes of those before. */
export async function check(
  panel: NotebookPanel,
  wanted: (found: IOutline) => IExercise[]
): Promise<void> {
  const found = outlineOf(panel);
  const exercises = wanted(found);
  if (exercises.length === 0) {
    return;
  }
  await panel.sessionContext.ready;
  const known = await about(panel, found.lesson).catch(() => null);
  const places = toRun(cellsOf(panel), found, exercises, known?.loaded ?? found.lesson === '');
  const notebook = panel.content;
  const cells = places.map(place => notebook.widgets[place]).filter(cell => cell !== undefined);
  for (const cell of cells) {
    if (cell.isDisposed || !kernelOf(panel)) {
      return;
    }
    await NotebookActions.runCells(notebook, [cell], panel.sessionContext);
  }
  const last = exercises[exercises.length - 1]!;
  show(panel, last.check >= 0 ? last.check : last.solution);
}

/** Turn to a cell. */
export function show(panel: NotebookPanel, place: number): void {
  const notebook = panel.content;
  if (place >= 0 && place < notebook.widgets.length) {
    notebook.activeCellIndex = place;
    notebook.deselectAll();
    void notebook.scrollToItem(place, 'smart').catch(() => undefined);
  }
}
