/** The ids of all commands. */
export const CommandIds = {
  sidebar: 'fakegpu-lab:show-gpus',
  choose: 'fakegpu-lab:choose-gpus',
  enable: 'fakegpu-lab:enable',
  reset: 'fakegpu-lab:reset',
  off: 'fakegpu-lab:off'
} as const;
