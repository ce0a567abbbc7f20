/** What jsdom lacks of a browser: canvases that note what is drawn, sizes, and being in view. */

/** What was drawn on canvases, in order. */
export interface IDrawn {
  texts: string[];
  pictures: ImageData[];
}

export const drawn: IDrawn = { texts: [], pictures: [] };

function context(canvas: HTMLCanvasElement): unknown {
  const known: Record<string, unknown> = {
    canvas,
    fillStyle: '#000000',
    fillText: (text: string) => drawn.texts.push(text),
    measureText: (text: string) => ({ width: 6 * text.length }),
    putImageData: (picture: ImageData) => drawn.pictures.push(picture),
    getImageData: () => {
      const colour = /^#(..)(..)(..)$/.exec(String(known.fillStyle)) ?? [0, '88', '88', '88'];
      return { data: colour.slice(1).map(part => parseInt(String(part), 16)) };
    }
  };
  return new Proxy(known, {
    get: (target, name: string) => (name in target ? target[name] : () => undefined),
    set: (target, name: string, value) => {
      target[name] = value;
      return true;
    }
  });
}

/** Put what is missing into the page. */
export function furnish(width = 900): void {
  const contexts = new Map<HTMLCanvasElement, unknown>();
  HTMLCanvasElement.prototype.getContext = function (this: HTMLCanvasElement) {
    if (!contexts.has(this)) {
      contexts.set(this, context(this));
    }
    return contexts.get(this);
  } as never;
  class Sized {
    constructor(private _tell: (entries: object[]) => void) {}
    observe(): void {
      this._tell([{ contentRect: { width }, isIntersecting: true }]);
    }
    disconnect(): void {
      // nothing is kept
    }
  }
  Object.assign(globalThis, {
    ResizeObserver: Sized,
    IntersectionObserver: Sized,
    ImageData: class {
      constructor(
        readonly data: Uint8ClampedArray,
        readonly width: number,
        readonly height: number
      ) {}
    },
    Path2D: class {},
    requestAnimationFrame: (call: (now: number) => void) =>
      setTimeout(() => call(performance.now()), 0),
    cancelAnimationFrame: clearTimeout
  });
  window.matchMedia = (() => ({
    matches: false,
    addEventListener: () => undefined,
    removeEventListener: () => undefined
  })) as never;
}
