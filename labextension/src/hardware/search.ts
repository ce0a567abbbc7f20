import type { IProfile } from '../kernel/probe';
import { capacity, size } from '../units';

/** The profiles that have every word in their id, name, architecture or memory; the memory in whole GiB. */
export function matching(profiles: IProfile[], words: string): IProfile[] {
  const wanted = words
    .toLowerCase()
    .replace(/(\d)\s+(gib|gb)\b/g, '$1$2')
    .split(/\s+/)
    .filter(word => word !== '');
  return profiles.filter(profile => {
    const label = Math.round(profile.memory / 2 ** 30);
    const all = [
      profile.id,
      profile.name,
      profile.architecture,
      size(profile.memory),
      capacity(profile.total ?? profile.memory),
      `${label}gib`,
      `${label}gb`
    ]
      .join(' ')
      .toLowerCase();
    return wanted.every(word => all.includes(word));
  });
}
