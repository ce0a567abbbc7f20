import type { ILesson } from './library';

/** Lessons by their track, in the order in which tracks come. */
export function tracks(lessons: ILesson[]): [string, ILesson[]][] {
  const found = new Map<string, ILesson[]>();
  for (const lesson of lessons) {
    const track = lesson.track ?? '';
    found.set(track, [...(found.get(track) ?? []), lesson]);
  }
  return [...found];
}
