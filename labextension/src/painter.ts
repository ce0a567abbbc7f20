/** Draws when asked, with the next frame of the page, and no more often than `rate` times a second. */
export class Painter {
  constructor(private _draw: () => void) {}

  /** Drawings a second, at the most. */
  rate = 10;

  /** Have it drawn; many askings before the next frame are one. */
  ask(): void {
    if (this._asked) {
      return;
    }
    this._asked = true;
    const wait = this._last + 1000 / this.rate - performance.now();
    if (wait > 4) {
      window.setTimeout(() => this._frame(), wait);
    } else {
      this._frame();
    }
  }

  private _frame(): void {
    requestAnimationFrame(() => {
      this._asked = false;
      this._last = performance.now();
      this._draw();
    });
  }

  private _asked = false;
  private _last = 0;
}
