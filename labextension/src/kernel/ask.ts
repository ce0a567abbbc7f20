import type { Kernel } from '@jupyterlab/services';
import type { PartialJSONObject, ReadonlyJSONObject } from '@lumino/coreutils';

/** The version of questions and answers that is known here; see fakegpu_lab/sidebar/answers.py. */
const VERSION = 1;

/** Why there is no answer, in a sentence for people. */
export class Unanswered extends Error {}

/** Ask fakegpu_lab in a kernel; it runs nothing of the student's, and leaves no trace in the history. */
export async function ask<T>(
  kernel: Kernel.IKernelConnection,
  question: ReadonlyJSONObject
): Promise<T> {
  // JSON's text is a literal in Python, too.
  const text = JSON.stringify(JSON.stringify(question));
  let answered: { version: number; ok: boolean; told?: T; why?: string };
  try {
    answered = (await evaluate(
      kernel,
      `__import__("fakegpu_lab.sidebar.answers", fromlist=["answer"]).answer(${text})`
    )) as typeof answered;
  } catch (reason) {
    const why = reason instanceof Error ? reason.message : String(reason);
    throw new Unanswered(
      /No module named/.test(why)
        ? 'The Python of this kernel does not have fakegpu_lab, or has an older one: %pip install -U fakegpu-lab.'
        : why
    );
  }
  if (!answered.ok || answered.told === undefined || answered.version > VERSION) {
    throw new Unanswered(
      answered.why ??
        'The fakegpu_lab of this kernel is newer than this extension: reload the page.'
    );
  }
  return answered.told;
}

/** The value of an expression that gives JSON. */
export async function evaluate(
  kernel: Kernel.IKernelConnection,
  expression: string
): Promise<unknown> {
  const future = kernel.requestExecute({
    code: '',
    silent: true,
    store_history: false,
    allow_stdin: false,
    stop_on_error: false,
    user_expressions: { told: expression }
  });
  const reply = await future.done;
  const content = reply.content as unknown as { user_expressions?: PartialJSONObject };
  const told = content.user_expressions?.told as
    { status: string; data?: Record<string, string>; evalue?: string } | undefined;
  const shown = told?.data?.['text/plain'];
  if (told?.status !== 'ok' || shown === undefined) {
    throw new Error(told?.evalue ?? 'The kernel did not answer.');
  }
  return JSON.parse(unquoted(shown));
}

/** The text that Python's repr of a string shows. */
export function unquoted(shown: string): string {
  const quote = shown[0];
  if ((quote !== "'" && quote !== '"') || shown[shown.length - 1] !== quote) {
    throw new Error('The kernel answered with something other than text.');
  }
  return shown
    .slice(1, -1)
    .replace(
      /\\(?:x([0-9a-f]{2})|u([0-9a-f]{4})|U([0-9a-f]{8})|(.))/g,
      (
        _all,
        two: string | undefined,
        four: string | undefined,
        eight: string | undefined,
        one: string
      ) => {
        const code = two ?? four ?? eight;
        if (code !== undefined) {
          return String.fromCodePoint(parseInt(code, 16));
        }
        return { n: '\n', t: '\t', r: '\r' }[one] ?? one;
      }
    );
}
