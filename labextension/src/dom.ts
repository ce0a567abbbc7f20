/** Making elements. What is given as a child is a node or text, and text stays text: nothing is ever read as HTML. */

type Child = Node | string;

type Attributes = Record<string, string | number | boolean | EventListener | undefined>;

/** An element; `on…` attributes are listeners, `false` and `undefined` leave one out. */
export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Attributes = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === 'function') {
      element.addEventListener(name.slice(2), value);
    } else if (value !== undefined && value !== false) {
      element.setAttribute(name, value === true ? '' : String(value));
    }
  }
  element.append(...children);
  return element;
}

/**
 * Tell an element's width, px, whenever it changes. Who asks for it while drawing has the page lay itself out anew.
 */
export function watchWidth(element: Element, tell: (width: number) => void): ResizeObserver {
  let told = NaN;
  const observer = new ResizeObserver(entries => {
    const width = Math.round(entries[entries.length - 1]!.contentRect.width);
    if (width !== told) {
      told = width;
      tell(width);
    }
  });
  observer.observe(element);
  return observer;
}

/** Tell whether an element is in view, now and whenever that changes. */
export function watchSight(element: Element, tell: (seen: boolean) => void): IntersectionObserver {
  const observer = new IntersectionObserver(entries =>
    tell(entries[entries.length - 1]!.isIntersecting)
  );
  observer.observe(element);
  return observer;
}

/** Set an element's text; the page is not touched when it says so already. */
export function say(element: Element, text: string): void {
  const only = element.childNodes.length === 1 ? element.firstChild : null;
  if (only instanceof Text) {
    if (only.data !== text) {
      only.data = text; // a text that goes on being used is no garbage
    }
  } else if (element.firstChild || text) {
    element.textContent = text;
  }
}

/** Set an attribute; the page is not touched when it is so already. */
export function mark(element: Element, name: string, value: string): void {
  if (element.getAttribute(name) !== value) {
    element.setAttribute(name, value);
  }
}
