// Preact, its hooks and htm under one name; values that views share.
import { h } from "./vendor/preact.mjs";
import { useEffect, useState } from "./vendor/hooks.mjs";
import htm from "./vendor/htm.mjs";

export { Fragment, h, render } from "./vendor/preact.mjs";
export { useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from "./vendor/hooks.mjs";
export const html = htm.bind(h);

/** A value that tells its listeners of each change. */
export function shared(value) {
  const listeners = new Set();
  return {
    get: () => value,
    set(next) {
      value = next;
      for (const listener of [...listeners]) listener();
    },
    listen(listener) {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
  };
}

/** The value of a `shared`; the component is drawn anew at each change. */
export function useShared(source) {
  const [, redraw] = useState(0);
  useEffect(() => {
    redraw((n) => n + 1);
    return source.listen(() => redraw((n) => n + 1));
  }, [source]);
  return source.get();
}

/** True for a name that a browser takes for a step within a path. */
export const isDots = (text) => text === "." || text === "..";

/** "1 task", "2 tasks", "1,234 tasks". */
export const count = (n, one, many = `${one}s`) => `${number(n)} ${n === 1 ? one : many}`;
export const number = (n) => n.toLocaleString("en");

/** Do something for each item, four at a time, until the signal comes: a browser has six connections. */
export async function inLanes(items, act, signal) {
  let next = 0,
    stopped = false;
  const lane = async () => {
    try {
      while (next < items.length && !signal?.aborted && !stopped) await act(items[next++]);
    } catch (error) {
      stopped = true;
      throw error;
    }
  };
  // To the end of all four: one that went on after a failure would still tell of its progress.
  const failed = (await Promise.allSettled([lane(), lane(), lane(), lane()])).find((one) => one.reason);
  if (failed) throw failed.reason;
}

/** A script of a package that is no module: it is loaded once, when a view needs it. */
const scripts = new Map();
export function script(file) {
  if (!scripts.has(file)) {
    scripts.set(
      file,
      new Promise((loaded, failed) => {
        const node = document.createElement("script");
        node.src = new URL(`static/vendor/${file}`, document.baseURI);
        node.onload = loaded;
        node.onerror = () => failed(new Error(`${file} was not loaded`));
        document.head.append(node);
      }),
    );
  }
  return scripts.get(file);
}
