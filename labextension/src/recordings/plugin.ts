import { ILayoutRestorer, JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ToolbarButton, WidgetTracker } from '@jupyterlab/apputils';
import {
  ABCWidgetFactory,
  DocumentRegistry,
  DocumentWidget,
  TextModelFactory
} from '@jupyterlab/docregistry';
import { IRenderMimeRegistry } from '@jupyterlab/rendermime';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';
import { refreshIcon } from '@jupyterlab/ui-components';

import { gpuIcon } from '../icon';
import { RecordingView } from './view';

const FACTORY = 'GPU recording';
const MODEL = 'fakegpu-lab:recording';

/** Files that are opened by a double click; any other JSON, with "Open With". */
const TYPES: Partial<DocumentRegistry.IFileType>[] = [
  {
    name: 'fakegpu-lab-trace',
    displayName: 'GPU recording',
    extensions: ['.trace.json', '.trace.json.gz']
  },
  {
    name: 'fakegpu-lab-snapshot',
    displayName: 'GPU memory snapshot',
    extensions: ['.pickle']
  }
];

/** A document of which the page never reads the file: a recording may have hundreds of megabytes. */
class Unread extends TextModelFactory {
  override get name(): string {
    return MODEL;
  }

  override get fileFormat(): null {
    return null;
  }
}

class Recordings extends ABCWidgetFactory<DocumentWidget<RecordingView>> {
  constructor(
    options: DocumentRegistry.IWidgetFactoryOptions,
    private _make: () => RecordingView,
    private _again: string
  ) {
    super(options);
  }

  protected createNewWidget(context: DocumentRegistry.Context): DocumentWidget<RecordingView> {
    const content = this._make();
    const widget = new DocumentWidget({ content, context });
    const show = (): void => void content.show_(context.path);
    widget.toolbar.addItem(
      'again',
      new ToolbarButton({ icon: refreshIcon, tooltip: this._again, onClick: show })
    );
    widget.title.icon = gpuIcon;
    void context.ready.then(show);
    return widget;
  }
}

/** Opens recordings of real cards: what torch.profiler wrote, and snapshots of memory. */
export const recordingsPlugin: JupyterFrontEndPlugin<void> = {
  id: 'fakegpu-lab:recordings',
  description: 'Opens recordings of GPUs: traces of torch.profiler, and memory snapshots.',
  autoStart: true,
  requires: [IRenderMimeRegistry],
  optional: [ILayoutRestorer, ITranslator],
  activate
};

function activate(
  app: JupyterFrontEnd,
  rendermime: IRenderMimeRegistry,
  restorer: ILayoutRestorer | null,
  translator: ITranslator | null
): void {
  const trans = (translator ?? nullTranslator).load('fakegpu_lab');
  const { docRegistry, serviceManager } = app;
  for (const type of TYPES) {
    docRegistry.addFileType({ ...type, fileFormat: null, contentType: 'file', icon: gpuIcon });
  }
  docRegistry.addModelFactory(new Unread());
  const names = TYPES.map(type => type.name!);
  const factory = new Recordings(
    {
      name: FACTORY,
      label: trans.__('GPU recording'),
      fileTypes: [...names, 'json'],
      defaultFor: names,
      modelName: MODEL,
      readOnly: true
    },
    () => new RecordingView(serviceManager, rendermime, serviceManager.contents, trans),
    trans.__('Open the file again')
  );
  docRegistry.addWidgetFactory(factory);
  const tracker = new WidgetTracker<DocumentWidget<RecordingView>>({
    namespace: 'fakegpu-lab-recordings'
  });
  factory.widgetCreated.connect((_, widget) => {
    void tracker.add(widget);
    widget.context.pathChanged.connect(() => void tracker.save(widget));
  });
  if (restorer) {
    void restorer.restore(tracker, {
      command: 'docmanager:open',
      args: widget => ({ path: widget.context.path, factory: FACTORY }),
      name: widget => widget.context.path
    });
  }
}
