// Data of views: loaded at once when a view opens, then again and again by one small request in two seconds, and by none
// while the page is hidden.
import { Away, away, get } from "./api.mjs";
import { useEffect, useRef, useState } from "./lib.mjs";
import { tenant } from "./route.mjs";

const BEAT_MS = 2_000;
const resources = new Map();
/** Requests of loads that repeat: each waits for its beat. */
let waiting = [];
let underWay = 0;

/** The newest value of `load(get, show)`, which is called `what`: {data, error}. It is loaded again after `every` ms at the earliest.
 *
 * By `show(part)`, a load of many requests shows what it has so far, where nothing is shown yet. */
export function useLive(what, load, every = BEAT_MS) {
  const name = what && `${tenant()} ${what}`;
  const [, redraw] = useState(0);
  const latest = useRef(load);
  latest.current = load;
  useEffect(() => {
    if (!name) return undefined;
    let resource = resources.get(name);
    if (!resource) resources.set(name, (resource = { at: 0, turn: 0, load: null, users: new Set() }));
    const user = () => redraw((n) => n + 1);
    resource.users.add(user);
    resource.every = every;
    resource.read = (from, show) => latest.current(from, show);
    if (Date.now() - resource.at > BEAT_MS) refresh(resource, get);
    else user();
    return () => {
      resource.users.delete(user);
      if (resource.users.size) return;
      resources.delete(name);
      waiting = waiting.filter((one) => one.resource !== resource);
    };
  }, [name, every]);
  const found = resources.get(name);
  return { data: found?.data, error: found?.error };
}

/** Load again what views show now, after an action. */
export const reloadAll = () => Promise.all([...resources.values()].map((one) => refresh(one, get)));

async function refresh(resource, from) {
  waiting = waiting.filter((one) => one.resource !== resource);
  const load = (resource.load = {});
  const tell = () => {
    for (const user of [...resource.users]) user();
  };
  const show = (part) => {
    if (resource.load !== load || (resource.data !== undefined && !resource.partial)) return;
    Object.assign(resource, { data: part, partial: true });
    tell();
  };
  let data,
    error = null;
  try {
    data = await resource.read(from, show);
  } catch (failed) {
    error = failed;
  }
  if (resource.load !== load) return; // a later load has begun
  resource.load = null;
  resource.at = Date.now();
  // What was seen before stays while the place is away: a line on top of the page says so.
  if (!error) Object.assign(resource, { data, error, partial: false });
  else if (!(error instanceof Away) || resource.data === undefined) resource.error = error;
  tell();
}

/** `get` for a load that repeats. */
const inTurn =
  (resource) =>
  (...request) =>
    new Promise((answer, failed) => {
      waiting.push({ resource, start: () => get(...request).then(answer, failed) });
    });

async function beat() {
  const now = Date.now();
  if (document.hidden || underWay || now < (away.get()?.next ?? 0)) return;
  for (const one of resources.values()) if (!one.load && now - one.at >= one.every) refresh(one, inTurn(one));
  // Who waited longest: a load of many requests does not hold up the others.
  const next = waiting.reduce((one, other) => (one && one.resource.turn <= other.resource.turn ? one : other), null);
  if (!next) return;
  waiting.splice(waiting.indexOf(next), 1);
  next.resource.turn = now;
  underWay++;
  await next.start();
  underWay--;
}

/** Try again at once, whatever the time to the next try. */
export function tryNow() {
  if (away.get()) away.set({ ...away.get(), next: 0 });
  beat();
}

setInterval(beat, BEAT_MS);
