// Instants and durations as people read them: in the reader's zone, with UTC on hover.
import { html, shared, useShared } from "./lib.mjs";

let offset = 0;
/** Set how far the ledger's clock is ahead of this machine's. */
export const setClock = (now) => {
  offset = Date.parse(now) - Date.now();
};
/** The present by the ledger's clock, in epoch ms. */
export const present = () => Date.now() + offset;

const moment = shared(present());
setInterval(() => {
  if (!document.hidden) moment.set(present());
}, 5_000);
/** The present, renewed each five seconds while the page is seen. */
export const useNow = () => {
  useShared(moment);
  return present();
};

export const ZONE = Intl.DateTimeFormat().resolvedOptions().timeZone;
const FOREVER = Date.parse("9999-01-01T00:00:00Z");
const formats = new Map();
function format(at, options) {
  const key = JSON.stringify(options);
  if (!formats.has(key)) formats.set(key, new Intl.DateTimeFormat("en-GB", options));
  return formats.get(key).format(at);
}

const TIME = { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" };
const SHORT = { hour: "2-digit", minute: "2-digit", hourCycle: "h23" };
export const dayOf = (at, zone) => format(at, { year: "numeric", month: "2-digit", day: "2-digit", timeZone: zone });
export const clock = (at) => format(at, SHORT);
export const dayName = (at) => format(at, { weekday: "short", day: "numeric", month: "short" });

/** An instant in the reader's zone: the time of today, or day and time. */
export function when(at, now = present()) {
  if (at >= FOREVER) return "no time yet";
  if (dayOf(at) === dayOf(now)) return format(at, TIME);
  const far = Math.abs(at - now) > 300 * 86_400_000;
  return `${format(at, { day: "numeric", month: "short", ...(far && { year: "numeric" }) })} ${format(at, SHORT)}`;
}

/** "3 min ago", "in 2 h 5 min". */
export function distance(at, now = present()) {
  if (at >= FOREVER) return "";
  const ms = at - now;
  if (Math.abs(ms) < 1_000) return "now";
  return ms < 0 ? `${span(-ms)} ago` : `in ${span(ms)}`;
}

const UNITS = [
  ["d", 86_400_000],
  ["h", 3_600_000],
  ["min", 60_000],
  ["s", 1_000],
];
/** A duration by its two largest units: "1 h 58 min", "4.2 s", "35 ms". */
export function span(ms) {
  if (ms < 1_000) return `${Math.round(ms)} ms`;
  if (ms < 10_000) return `${(ms / 1_000).toFixed(1).replace(".0", "")} s`;
  const first = UNITS.findIndex(([, size]) => ms >= size);
  const [unit, size] = UNITS[first];
  const whole = Math.floor(ms / size);
  const next = UNITS[first + 1];
  const rest = next ? Math.round((ms - whole * size) / next[1]) : 0;
  return rest && rest * next[1] < size ? `${whole} ${unit} ${rest} ${next[0]}` : `${rest ? whole + 1 : whole} ${unit}`;
}

/** An ISO duration such as `PT1H30M` in ms; NaN for another text. */
export function duration(text) {
  const found = /^P(?:([\d.]+)W)?(?:([\d.]+)D)?(?:T(?:([\d.]+)H)?(?:([\d.]+)M)?(?:([\d.]+)S)?)?$/.exec(text ?? "");
  if (!found) return NaN;
  const [weeks, days, hours, minutes, seconds] = found.slice(1).map((n) => Number(n ?? 0));
  return (((weeks * 7 + days) * 24 + hours) * 60 + minutes) * 60_000 + seconds * 1_000;
}
/** An ISO duration as people read it. */
export const spanOf = (text) => (text ? span(duration(text)) : "–");

const asDate = (at) => (typeof at === "number" ? at : Date.parse(at));

/** An instant; `how` is "when", "distance" or "both". */
export function Time({ at, how = "when" }) {
  const now = useNow();
  if (!at) return html`<span class="none">–</span>`;
  const ms = asDate(at);
  const utc = new Date(Math.min(ms, 8.64e15)).toISOString();
  const text =
    how === "when" ? when(ms, now) : how === "distance" ? distance(ms, now) : `${when(ms, now)} (${distance(ms, now)})`;
  const zoned = how === "distance" ? `${when(ms, now)} ${ZONE}\n` : `${distance(ms, now)}\n`;
  return html`<time datetime=${utc} title=${`${zoned}${utc}`}>${text || "–"}</time>`;
}

const INSTANT = /(?<!@)(\d{4}-\d\d-\d\dT[\d:.]+Z)/;
/** A sentence of the API; instants in it are shown in the reader's zone, but for those of an occurrence's id. */
export const Sentence = ({ text }) =>
  html`<span>${text.split(INSTANT).map((part, n) => (n % 2 ? html`<${Time} at=${part} />` : part))}</span>`;

/** Minutes by which a zone is ahead of UTC at an instant. */
export function zoneOffset(zone, at) {
  const name = format(at, { timeZone: zone, timeZoneName: "longOffset", year: "numeric" });
  const found = /GMT([+-])(\d\d):(\d\d)/.exec(name);
  return found ? (found[1] === "-" ? -1 : 1) * (Number(found[2]) * 60 + Number(found[3])) : 0;
}

/** Changes of a zone's clocks between two instants: [{at, minutes}]. */
export function clockChanges(zone, from, to) {
  const found = [];
  const step = 86_400_000;
  for (let at = from; at < to; at += step) {
    let low = at,
      high = Math.min(at + step, to);
    const before = zoneOffset(zone, low),
      after = zoneOffset(zone, high);
    if (before === after) continue;
    while (high - low > 60_000) {
      const middle = (low + high) / 2;
      if (zoneOffset(zone, middle) === before) low = middle;
      else high = middle;
    }
    found.push({ at: Math.floor(high / 60_000) * 60_000, minutes: after - before, zone });
  }
  return found;
}

/** The value of an `<input type=datetime-local>` for an instant, to the minute, and back. */
export const toInput = (ms) => new Date(ms - new Date(ms).getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
export const fromInput = (text) => (text ? new Date(text).toISOString() : undefined);
