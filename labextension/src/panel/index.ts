/** The panel as anywidget shows it; `make extension` builds fakegpu_lab/notebook/panel.js of this. */

import { Panel } from './panel';

/** What anywidget hands to a widget's module. */
interface IWidgetModel {
  get(name: string): unknown;
  on(event: string, heard: (message: unknown) => void): void;
  off(event: string, heard: (message: unknown) => void): void;
  send(content: unknown): void;
}

interface IRendered {
  model: IWidgetModel;
  el: HTMLElement;
}

function render({ model, el }: IRendered): () => void {
  const panel = new Panel(model.get('theme') as string);
  el.append(panel.node);
  const kept = model.get('state') as { kind?: string } | null;
  if (kept?.kind) {
    panel.take(kept); // what was saved with the notebook
  }
  const heard = (message: unknown): void => {
    const told = (message as { telemetry?: unknown } | null)?.telemetry;
    if (told && panel.take(told)) {
      model.send({ do: 'state' });
    }
  };
  model.on('msg:custom', heard);
  model.send({ do: 'state' });
  return () => {
    model.off('msg:custom', heard);
    panel.dispose();
  };
}

export default { render };
