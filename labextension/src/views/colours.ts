/** The variable with the colour of a category of memory. */
export function variable(category: string): string {
  return `--fg-${category.replace('_', '-')}`;
}

/** The colours that the style gives to CSS variables of a node; each is looked up once per theme. */
export class Colours {
  constructor(private _node: () => Element) {}

  /** A variable's colour, else another one's; gray if neither is set. */
  of(name: string, otherwise = ''): string {
    let found = this._known.get(name);
    if (found === undefined) {
      const style = getComputedStyle(this._node());
      const read = (one: string): string => (one ? style.getPropertyValue(one).trim() : '');
      found = read(name) || read(otherwise) || '#888888';
      this._known.set(name, found);
    }
    return found;
  }

  /** The theme has changed. */
  forget(): void {
    this._known.clear();
  }

  private _known = new Map<string, string>();
}
