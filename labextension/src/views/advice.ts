import { h } from '../dom';
import type { IAdvice } from '../telemetry/schema';
import type { IRows } from './tables';
import type { ITrans } from './trans';

/** What could be better, each with the line that it is about. */
export class Advice {
  constructor(private _trans: ITrans) {}

  readonly node = h('ul', { class: 'fg-List' });

  show(advice: IAdvice[]): void {
    const told = JSON.stringify(advice);
    if (this._told !== told) {
      this._told = told;
      this._advice = advice;
      this.node.replaceChildren(
        ...advice.map(({ rule, text, line }) =>
          h('li', {}, h('b', {}, rule), ` ${text} `, ...(line ? [h('code', {}, line)] : []))
        )
      );
    }
  }

  /** The same as a table, for a picture. */
  get rows(): IRows {
    return {
      heads: [this._trans.__('advice'), this._trans.__('line')],
      rows: this._advice.map(({ text, line }) => [text, line])
    };
  }

  private _told = '';
  private _advice: IAdvice[] = [];
}
