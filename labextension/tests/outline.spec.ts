import { CHECK, exerciseAt, ICell, outline, points, progress, toRun } from '../src/lessons/outline';

const code = (source: string, ...outputs: Record<string, unknown>[]): ICell => ({
  type: 'code',
  source,
  outputs
});

const text = (source: string): ICell => ({ type: 'markdown', source, outputs: [] });

const came = (score: number, met: boolean, more: object = {}): Record<string, unknown> => ({
  'text/html': '<b>shown by the notebook, not by us</b>',
  [CHECK]: {
    version: 1,
    exercise: 'a',
    score,
    points: 3,
    unsolved: false,
    parts: [{ met }],
    ...more
  }
});

const CELLS = [
  text('# A lesson'),
  code('%load_ext fakegpu_lab\n%lesson 02-transfers-and-time\nimport torch'),
  text('### Exercise: Time it rightly\n\n*3 points*'),
  code('%%exercise time-it\nraise NotImplementedError()'),
  code('%%check time-it\nexpect.true(1)', came(3, true)),
  code('# %hint time-it'),
  code('%%exercise hidden-sync\npass'),
  code('%%check hidden-sync\nexpect.true(0)', came(1, false)),
  code('b = 2'),
  code('%%check made-there\nexpect.true(0)', came(0, false, { unsolved: true })),
  code('%progress')
];

test('a lesson, its exercises in order, with their titles and what came of them', () => {
  const { lesson, exercises } = outline(CELLS);
  expect(lesson).toBe('02-transfers-and-time');
  expect(exercises.map(({ id, title, state }) => [id, title, state])).toEqual([
    ['time-it', 'Time it rightly', 'passed'],
    ['hidden-sync', 'hidden sync', 'failed'],
    ['made-there', 'made there', 'untried']
  ]);
  expect(exercises.map(({ solution, check }) => [solution, check])).toEqual([
    [3, 4],
    [6, 7],
    [-1, 9]
  ]);
  expect(exercises[1]).toMatchObject({ score: 1, points: 3 });
});

test('of several results the last counts; one of a version that is not known is none', () => {
  const [one] = outline([code('%%check a', came(0, false), came(3, true))]).exercises;
  expect(one?.state).toBe('passed');
  const [other] = outline([code('%%check a', came(3, true, { version: 2 }))]).exercises;
  expect(other?.state).toBe('untried');
  const [broken] = outline([code('%%check a', { [CHECK]: 'x' })]).exercises;
  expect(broken?.state).toBe('untried');
});

test('a notebook without exercises has none', () => {
  expect(outline([text('%%check a'), code('x = "%%check a"')])).toEqual({
    lesson: '',
    exercises: []
  });
});

test('the exercise of a cell', () => {
  const found = outline(CELLS);
  expect([3, 4, 5, 9].map(place => exerciseAt(found, place)?.id)).toEqual([
    'time-it',
    'time-it',
    undefined,
    'made-there'
  ]);
});

test('a check runs the solution and the check; in a fresh kernel all above, but no other check', () => {
  const found = outline(CELLS);
  const wanted = [found.exercises[1]!];
  expect(toRun(CELLS, found, wanted, true)).toEqual([6, 7]);
  expect(toRun(CELLS, found, wanted, false)).toEqual([1, 3, 5, 6, 7]);
  expect(toRun(CELLS, found, found.exercises, true)).toEqual([3, 4, 6, 7, 9]);
});

test('progress is read; a broken file is none', () => {
  const kept = {
    version: 1,
    lessons: { '01': { exercises: { a: { solved: true, best: 2 }, b: { best: 0.5 } } }, '02': {} }
  };
  expect(progress(JSON.stringify(kept)).get('01')).toEqual({ solved: 1, earned: 2.5 });
  expect(progress(JSON.stringify(kept)).get('02')).toEqual({ solved: 0, earned: 0 });
  expect(progress('{').size).toBe(0);
});

test('points without needless zeros', () => {
  expect([2, 1.5, 2 / 3].map(points)).toEqual(['2', '1.5', '0.67']);
});
