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
  if (element.textContent !== text) {
    element.textContent = text;
  }
}

/** Set an attribute; the page is not touched when it is so already. */
export function mark(element: Element, name: string, value: string): void {
  if (element.getAttribute(name) !== value) {
    element.setAttribute(name, value);
  }
}
