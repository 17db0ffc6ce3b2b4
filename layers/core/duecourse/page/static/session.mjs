// What the page's server says of itself: the place, its version, and whether it may be changed.
import { get } from "./api.mjs";
import { html, shared, useShared } from "./lib.mjs";
import { setClock } from "./times.mjs";

export const session = shared(null);

export async function loadSession() {
  const found = await get("/-/session");
  setClock(found.now);
  session.set(found);
  return found;
}

/** A button of an action; a reader who may only look sees none. */
export function Act({ children, onClick, kind = "", title }) {
  const found = useShared(session);
  if (!found || found.read_only) return null;
  return html`<button type="button" class=${kind} title=${title} onClick=${onClick}>${children}</button>`;
}
