/** A message as `telemetry.py` makes it, for two A100s. */

export const GIB = 2 ** 30;

export function device(slot: number, allocated: number, more: object = {}): object {
  return {
    index: slot,
    slot,
    id: 'a100',
    name: 'NVIDIA A100-SXM4-80GB',
    memory: {
      total: 80 * GIB,
      free: 80 * GIB - allocated - GIB,
      allocated,
      peak_allocated: allocated,
      reserved: allocated,
      peak_reserved: allocated,
      context: GIB,
      alloc_retries: 0,
      ooms: 0,
      categories: null
    },
    counters: {
      kernels: 3,
      h2d_count: 1,
      h2d_bytes: 1024,
      d2h_count: 0,
      d2h_bytes: 0,
      p2p_sent_count: 1,
      p2p_sent_bytes: 512,
      p2p_received_count: 0,
      p2p_received_bytes: 0,
      collective_count: 0,
      collective_bytes: 0,
      collective_wait_ns: 0,
      h2d_ns: 0,
      d2h_ns: 0,
      p2p_sent_ns: 0,
      p2p_sent_to: slot === 0 ? { '1': 512 } : {}
    },
    time: { busy_ns: 10, done_ns: 20 },
    ...more
  };
}

export const COLUMNS = [
  'now_ns',
  'parameters',
  'gradients',
  'optimizer_state',
  'activations',
  'inputs',
  'workspace',
  'other',
  'reserved'
];

export function state(more: object = {}): Record<string, unknown> {
  return {
    version: 1,
    kind: 'state',
    seq: 1,
    epoch: 1,
    enabled: true,
    note: '',
    spec: 'a100:2',
    compute: 'real',
    now_ns: 30,
    busy: false,
    columns: COLUMNS,
    devices: [device(0, 2 * GIB), device(1, 0)],
    utilisation: { '0': 0.5, '1': 0 },
    history: {
      '0': [
        [10, GIB, 0, 0, 0, 0, 0, 0, 4 * GIB],
        [20, GIB, 0, 0, GIB, 0, 0, 0, 4 * GIB]
      ],
      '1': []
    },
    steps: [[15, 1]],
    timeline: null,
    collectives: [],
    error: null,
    advice: [],
    ...more
  };
}

/** The allocations of a step: weights from before, an activation that is freed, a gradient that stays. */
export const ALLOCATIONS = {
  slot: 0,
  title: 'Step 3',
  said: 'Peak of cuda:0: 7.00 GiB, after 2.64 ms, in backward (3 tensors)',
  peak: 7 * GIB,
  peak_step: 2,
  steps: 4,
  columns: [0, 1, 2, 3, 4],
  bands: [
    ['parameters', 1, GIB, '', '', '', '', -1, [], [[0, GIB]]],
    [
      'activations',
      1,
      4 * GIB,
      '1024×1024 float32',
      'aten::gelu',
      'Net.mlp',
      'forward',
      5000,
      [0, 1],
      [
        [1, 4 * GIB],
        [3, -4 * GIB]
      ]
    ],
    ['gradients', 1, 2 * GIB, '512 float32', 'aten::mm', '', 'backward', -1, [1], [[2, 2 * GIB]]]
  ],
  lines: ['In[3], line 5  return gelu(self.up(x))', 'In[3], line 9  loss.backward()'],
  phases: [
    ['forward', 1, 2],
    ['backward', 2, 5]
  ],
  modules: [['Net.mlp', 1, 2]],
  groups: [
    [
      4 * GIB,
      1,
      'activations',
      '1024×1024 float32',
      'gelu',
      'In[3], line 5  return gelu(self.up(x))'
    ],
    [3 * GIB, 2, '', '', '', '']
  ]
};

export function update(seq: number, more: object = {}): Record<string, unknown> {
  return state({
    kind: 'update',
    seq,
    devices: [],
    history: {},
    steps: [],
    collectives: null,
    advice: null,
    ...more
  });
}
