import type { IRows } from './tables';

/** A part of the picture: a heading, and a figure or a table below it. */
export interface IPart {
  heading: string;
  figure?: HTMLCanvasElement | null;
  legend?: { colour: string; text: string }[];
  table?: IRows;
}

const MARGIN = 16;
const LINE = 20;

/** Draw the parts one below the other, at twice the page's size, so that it can be printed. */
export function draw(
  title: string,
  parts: IPart[],
  width: number,
  paper: string,
  ink: string
): HTMLCanvasElement {
  const canvas = document.createElement('canvas');
  const context = canvas.getContext('2d')!;
  const inner = width - 2 * MARGIN;
  const font = (weight: number, size: number): string =>
    `${weight} ${size}px system-ui, sans-serif`;

  /** Go through the parts; without `inked` it only measures. */
  const go = (inked: boolean): number => {
    let top = MARGIN;
    const write = (text: string, left: number, weight = 400, size = 12, most = inner): void => {
      if (inked) {
        context.font = font(weight, size);
        context.fillStyle = ink;
        context.textBaseline = 'top';
        context.fillText(text, left, top, most);
      }
    };
    write(title, MARGIN, 600, 16);
    top += 28;
    for (const part of parts) {
      write(part.heading, MARGIN, 600, 13);
      top += 22;
      const { figure, legend, table } = part;
      if (figure && figure.width > 0) {
        const tall = (figure.height / figure.width) * inner;
        if (inked) {
          context.drawImage(figure, MARGIN, top, inner, tall);
        }
        top += tall + 6;
      }
      if (legend && legend.length > 0) {
        let left = MARGIN;
        context.font = font(400, 12);
        for (const { colour, text } of legend) {
          const wide = context.measureText(text).width + 32;
          if (left + wide > width - MARGIN && left > MARGIN) {
            left = MARGIN;
            top += LINE;
          }
          if (inked) {
            context.fillStyle = colour;
            context.fillRect(left, top + 1, 10, 10);
          }
          write(text, left + 14);
          left += wide;
        }
        top += LINE + 4;
      }
      if (table) {
        const column = inner / Math.max(1, table.heads.length);
        for (const [number, row] of [table.heads, ...table.rows].entries()) {
          row.forEach((text, place) =>
            write(text, MARGIN + place * column, number === 0 ? 600 : 400, 12, column - 8)
          );
          top += LINE;
        }
      }
      top += 12;
    }
    return top + MARGIN - 12;
  };

  const height = go(false);
  canvas.width = 2 * width;
  canvas.height = Math.ceil(2 * height);
  context.scale(2, 2);
  context.fillStyle = paper;
  context.fillRect(0, 0, width, height);
  go(true);
  return canvas;
}

/** Have the browser save something as a file. */
export function save(name: string, content: Blob): void {
  const link = document.createElement('a');
  link.href = URL.createObjectURL(content);
  link.download = name;
  link.click();
  window.setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
