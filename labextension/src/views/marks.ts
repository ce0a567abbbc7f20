/** Marks of steps along an axis: which of them have room for their name. */

/** A step that ended: when, ns, and which. */
export type Step = readonly [number, number];

/** A mark that has room for its text, and where that begins. */
export interface ILabel {
  at: number;
  left: number;
  text: string;
}

/**
 * Of marks along an axis from left to right, those whose texts fit beside each other: every first, second, fifth, tenth
 * … by the step's number, so that the numbers that are left read like a scale.
 */
export function labels(
  steps: readonly Step[],
  place: (ns: number) => number,
  width: number,
  measure: (text: string) => number,
  gap = 8
): ILabel[] {
  for (let power = 1; ; power *= 10) {
    for (const digit of [1, 2, 5]) {
      const every = digit * power;
      const found = fitting(steps, every, place, width, measure, gap);
      if (found) {
        return found;
      }
    }
  }
}

function fitting(
  steps: readonly Step[],
  every: number,
  place: (ns: number) => number,
  width: number,
  measure: (text: string) => number,
  gap: number
): ILabel[] | null {
  const chosen = steps.filter(([, step], order) => order === 0 || step % every === 0);
  const found: ILabel[] = [];
  let free = -Infinity;
  for (const [ns, step] of chosen) {
    const text = String(step);
    const at = place(ns);
    const wide = measure(text);
    const left = Math.min(Math.max(0, at - wide / 2), width - wide);
    if (left < free) {
      if (found.length === 1 && every > 1) {
        continue; // beside the first, which is no multiple
      }
      return null;
    }
    found.push({ at, left, text });
    free = left + wide + gap;
  }
  return found;
}

/** A named box from one place to another. */
export interface IBox {
  name: string;
  left: number;
  right: number;
}

/** Boxes in their order; neighbours that are thinner than `thin` are one box, without a name. */
export function merged(boxes: IBox[], thin: number): IBox[] {
  const found: IBox[] = [];
  let open: IBox | null = null;
  for (const box of boxes) {
    if (box.right - box.left >= thin) {
      open = null;
      found.push(box);
    } else if (open && box.left - open.right < 1) {
      open.right = Math.max(open.right, box.right);
    } else {
      open = { ...box, name: '' };
      found.push(open);
    }
  }
  return found;
}

/** Whether `room` above a line is free of the others, and of the figure's end; all are heights from the top. */
export function roomAbove(line: number, others: number[], room: number): boolean {
  return others.every(other => other >= line || line - other >= room);
}
