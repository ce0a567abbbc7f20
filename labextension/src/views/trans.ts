type Value = string | number | undefined;

/** What views need of a translation; JupyterLab's bundles have it. */
export interface ITrans {
  __(text: string, ...values: Value[]): string;
  _n(one: string, many: string, count: number, ...values: Value[]): string;
}

function filled(text: string, values: Value[]): string {
  return text.replace(/%(\d)/g, (_, place: string) => String(values[Number(place) - 1] ?? ''));
}

/** The texts as they are written, for a page that has no translations. */
export const plain: ITrans = {
  __: (text, ...values) => filled(text, values),
  _n: (one, many, count, ...values) => filled(count === 1 ? one : many, [count, ...values])
};
