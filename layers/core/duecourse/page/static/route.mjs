// Addresses: each view has one, below the base of the page.
import { isDots, shared } from "./lib.mjs";

const BASE = new URL(document.baseURI).pathname;

function read() {
  const path = location.pathname.startsWith(BASE) ? location.pathname.slice(BASE.length) : "";
  return {
    parts: path.split("/").filter(Boolean).map(decoded),
    query: Object.fromEntries(new URLSearchParams(location.search)),
  };
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

export const route = shared(read());

/** Tenant that the address names, "" for none. It stays in every address that a view links to. */
export const tenant = () => new URLSearchParams(location.search).get("tenant") ?? "";

/** Address of a view, relative to the base: `to(["tasks", id], {queue})`. */
export function to(parts, query = {}) {
  if (parts.some(isDots)) return to(["search"], { q: parts.find(isDots) });
  const given = Object.entries({ tenant: tenant(), ...query }).filter(([, value]) => value !== undefined && value !== null && value !== "");
  const search = new URLSearchParams(given).toString();
  return BASE + parts.map(encodeURIComponent).join("/") + (search ? `?${search}` : "");
}

export function go(address, { replace = false } = {}) {
  history[replace ? "replaceState" : "pushState"](null, "", address);
  const before = route.get().parts.join("/");
  route.set(read());
  if (before !== route.get().parts.join("/")) {
    scrollTo(0, 0);
    document.querySelector("main")?.focus({ preventScroll: true });
  }
}

/** Change parts of this view's query, in place. */
export const filter = (changes) => go(to(route.get().parts, { ...route.get().query, ...changes }), { replace: true });

addEventListener("popstate", () => route.set(read()));
document.addEventListener("click", (event) => {
  const link = event.target.closest?.("a[href]");
  if (
    !link ||
    event.defaultPrevented ||
    event.button ||
    event.metaKey ||
    event.ctrlKey ||
    event.shiftKey ||
    link.target
  )
    return;
  const url = new URL(link.href);
  if (url.origin !== location.origin || !url.pathname.startsWith(BASE) || url.hash) return;
  event.preventDefault();
  go(url.pathname + url.search);
});
