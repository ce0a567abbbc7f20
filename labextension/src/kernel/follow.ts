import type { ISessionContext } from '@jupyterlab/apputils';
import type { IConsoleTracker } from '@jupyterlab/console';
import type { INotebookTracker } from '@jupyterlab/notebook';
import { ISignal, Signal } from '@lumino/signaling';
import type { Widget } from '@lumino/widgets';

import { Link } from './link';

/** A notebook's or console's panel. */
export type Document = Widget & { sessionContext: ISessionContext };

/** Follows the notebook or console that was active last, and keeps one link to each that is open. */
export class Follower {
  constructor(
    private _notebooks: INotebookTracker,
    private _consoles: IConsoleTracker | null
  ) {
    _notebooks.currentChanged.connect((_, widget) => {
      this._follow(widget ?? _consoles?.currentWidget ?? null);
    });
    _consoles?.currentChanged.connect((_, widget) => {
      this._follow(widget ?? _notebooks.currentWidget);
    });
    this._turn();
  }

  /** Emitted when another link is followed, and when what it shows has changed. */
  get changed(): ISignal<this, void> {
    return this._changed;
  }

  /** The link that is followed; null when no notebook is open. */
  get link(): Link | null {
    return this._link;
  }

  /** The notebook or console that is followed. */
  get document(): Document | null {
    return this._document;
  }

  /** Follow what is active in the shell. */
  look(widget: Widget | null): void {
    const document = [this._notebooks, this._consoles].some(
      tracker => widget !== null && tracker?.has(widget)
    );
    if (document) {
      this._follow(widget as Document);
    }
  }

  private _turn(): void {
    this._follow(this._notebooks.currentWidget ?? this._consoles?.currentWidget ?? null);
  }

  private _follow(document: Document | null): void {
    if (document === this._document && document !== null) {
      return;
    }
    this._document = document;
    this._link?.changed.disconnect(this._pass, this);
    this._link = null;
    if (document) {
      let link = this._links.get(document);
      if (!link) {
        link = new Link(document.sessionContext);
        this._links.set(document, link);
        document.disposed.connect(this._gone, this);
      }
      this._link = link;
      link.changed.connect(this._pass, this);
    }
    this._changed.emit();
  }

  private _gone(document: Widget): void {
    this._links.get(document)?.dispose();
    this._links.delete(document);
    if (document === this._document) {
      this._document = null;
      this._turn();
    }
  }

  private _pass(): void {
    this._changed.emit();
  }

  private _document: Document | null = null;
  private _link: Link | null = null;
  private _links = new Map<Widget, Link>();
  private _changed = new Signal<this, void>(this);
}
