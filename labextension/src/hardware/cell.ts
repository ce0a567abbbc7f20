/** The cell that chooses the hardware, as text: pure, so that it can be tested without a notebook. */

const LOAD = '%load_ext fakegpu_lab';

/** What is chosen. */
export interface IChoice {
  /** As `%fakegpu` takes it: a100, a100:2, dgx-a100. */
  spec: string;
  /** As `--memory` takes it; empty for all of it. */
  memory: string;
}

/** The line that enables it. */
export function line({ spec, memory }: IChoice): string {
  return memory ? `%fakegpu ${spec} --memory ${memory}` : `%fakegpu ${spec}`;
}

/** Whether a cell does nothing but load the package and enable GPUs: then a new choice replaces it. */
export function chooses(source: string): boolean {
  const lines = source
    .split('\n')
    .map(one => one.trim())
    .filter(one => one !== '' && !one.startsWith('#'));
  const enabling = lines.filter(
    one =>
      /^%fakegpu\s+\S/.test(one) &&
      !/^%fakegpu\s+(off|reset|panel|footer|profiles|real)\b/.test(one)
  );
  return enabling.length === 1 && lines.every(one => one === enabling[0] || one === LOAD);
}

/** Whether a cell loads the package. */
export function loads(source: string): boolean {
  return source.split('\n').some(one => one.trim() === LOAD);
}

/** What is to be done with a notebook's cells to choose hardware in it. */
export interface IPlan {
  place: number;
  /** Whether the cell at `place` is written anew, rather than one put before it. */
  replace: boolean;
  source: string;
}

/**
 * Where the choice goes: into the first cell that is one already, else before the first code cell.
 *
 * @param cells - type and source of each, in order.
 */
export function plan(cells: { type: string; source: string }[], choice: IChoice): IPlan {
  const found = cells.findIndex(cell => cell.type === 'code' && chooses(cell.source));
  if (found >= 0) {
    const kept = cells[found]!.source.split('\n')
      .map(one => {
        if (!/^\s*%fakegpu\s/.test(one)) {
          return one;
        }
        // What the dialog does not ask for stays: --compute meta.
        const [compute] = /\s--compute[\s=]\S+/.exec(one) ?? [''];
        return line(choice) + compute;
      })
      .join('\n');
    return { place: found, replace: true, source: kept };
  }
  const first = cells.findIndex(cell => cell.type === 'code');
  const place = first >= 0 ? first : cells.length;
  const blank = first >= 0 && cells[first]!.source.trim() === '';
  return { place, replace: blank, source: `${LOAD}\n${line(choice)}` };
}
