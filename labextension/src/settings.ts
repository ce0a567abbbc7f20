/** The settings, with their defaults; `schema/plugin.json` says what they mean. */
export interface ISettings {
  updateRate: number;
  spec: string;
  transfers: boolean;
  collectives: boolean;
  timeline: boolean;
  advice: boolean;
  statusBar: boolean;
}

/** Read them; one of the wrong type is as if it were not set. */
export function readSettings(given: Record<string, unknown>): ISettings {
  const flag = (name: string): boolean => {
    const value = given[name];
    return typeof value === 'boolean' ? value : true;
  };
  const rate = given.updateRate;
  const spec = given.defaultGpus;
  return {
    updateRate: typeof rate === 'number' && rate > 0 ? Math.min(30, rate) : 10,
    spec: typeof spec === 'string' && spec.trim() !== '' ? spec.trim() : 'a100:2',
    transfers: flag('showTransfers'),
    collectives: flag('showCollectives'),
    timeline: flag('showTimeline'),
    advice: flag('showAdvice'),
    statusBar: flag('showInStatusBar')
  };
}
