import type { IConsoleTracker } from '@jupyterlab/console';
import { INotebookTracker, NotebookActions, NotebookPanel } from '@jupyterlab/notebook';
import type { Widget } from '@lumino/widgets';

import { IChoice, line, plan } from './cell';

/** Put the choice into the notebook, as a cell, and run it; in a console, run it. */
export async function apply(
  document: Widget | null,
  choice: IChoice,
  notebooks: INotebookTracker,
  consoles: IConsoleTracker | null
): Promise<void> {
  if (document && notebooks.has(document)) {
    await inNotebook(document as NotebookPanel, choice);
  } else if (document) {
    const panel = consoles?.find(one => one === document);
    await panel?.console.inject(`%load_ext fakegpu_lab\n${line(choice)}`);
  }
}

async function inNotebook(panel: NotebookPanel, choice: IChoice): Promise<void> {
  const notebook = panel.content;
  const shared = notebook.model?.sharedModel;
  if (!shared) {
    return;
  }
  const made = plan(
    shared.cells.map(cell => ({ type: cell.cell_type, source: cell.getSource() })),
    choice
  );
  if (made.replace) {
    shared.getCell(made.place).setSource(made.source);
  } else {
    shared.insertCell(made.place, { cell_type: 'code', source: made.source });
  }
  notebook.activeCellIndex = made.place;
  notebook.deselectAll();
  await NotebookActions.run(notebook, panel.sessionContext);
}

/** Run a line in the document's kernel as the student would, in a cell of its own at the end of a console or below the active cell. */
export async function runLine(
  document: Widget | null,
  code: string,
  notebooks: INotebookTracker,
  consoles: IConsoleTracker | null
): Promise<void> {
  if (document && notebooks.has(document)) {
    const panel = document as NotebookPanel;
    const notebook = panel.content;
    NotebookActions.insertBelow(notebook);
    notebook.activeCell?.model.sharedModel.setSource(code);
    await NotebookActions.run(notebook, panel.sessionContext);
  } else if (document) {
    await consoles?.find(one => one === document)?.console.inject(code);
  }
}
