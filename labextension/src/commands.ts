/** The ids of all commands. */
export const CommandIds = {
  sidebar: 'fakegpu-lab:show-gpus',
  choose: 'fakegpu-lab:choose-gpus',
  enable: 'fakegpu-lab:enable',
  reset: 'fakegpu-lab:reset',
  off: 'fakegpu-lab:off',
  dashboard: 'fakegpu-lab:show-dashboard',
  pause: 'fakegpu-lab:pause-dashboard',
  picture: 'fakegpu-lab:save-dashboard-png',
  csv: 'fakegpu-lab:save-memory-csv',
  lessons: 'fakegpu-lab:show-lessons',
  openLesson: 'fakegpu-lab:open-lesson',
  startOver: 'fakegpu-lab:start-over',
  check: 'fakegpu-lab:check-exercise',
  checkAll: 'fakegpu-lab:check-all',
  hint: 'fakegpu-lab:hint'
} as const;
