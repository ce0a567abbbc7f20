import type { ILesson } from '../src/lessons/library';
import { tracks } from '../src/lessons/tracks';

const lesson = (name: string, track?: string): ILesson => ({
  name,
  title: name,
  goal: '',
  minutes: 1,
  track,
  points: 0,
  exercises: 0,
  solved: 0,
  earned: 0,
  notebook: '',
  newer: false
});

test('lessons of a track stand together, in the order in which tracks come', () => {
  const lessons = [
    lesson('00'),
    lesson('01', 'One GPU'),
    lesson('04', 'Many GPUs'),
    lesson('05', 'One GPU')
  ];
  const found = tracks(lessons).map(([track, several]) => [track, several.map(({ name }) => name)]);
  expect(found).toEqual([
    ['', ['00']],
    ['One GPU', ['01', '05']],
    ['Many GPUs', ['04']]
  ]);
});
