// Requests to the HTTP API through the page's own server, and what becomes of them.
import { isDots, shared } from "./lib.mjs";
import { tenant } from "./route.mjs";

const PATIENCE_MS = 15_000;
const MAX_WAIT_MS = 60_000;
const PAGE_KEY = "urn:duecourse:problem:page-key";
const NO_KEY = "The key of this page is no longer valid: open the address that the command prints.";

/** Text of a problem, or of a gateway's own answer. */
const textOf = (document) => document?.detail || document?.title || document?.message;

/** The API rejects a request: its own text, field by field if it has fields. */
export class Problem extends Error {
  constructor(status, document) {
    const errors = document.errors ?? [];
    super(textOf(document) || `The answer is ${status}.`);
    this.status = status;
    this.document = document;
    this.fields = Object.fromEntries(errors.map((one) => [one.field, one.problem]));
  }
}

/** No answer, or none of use: the place is away, and the page tries again. */
export class Away extends Error {}

/** Null while the place answers; otherwise since when it does not, why, and when the page tries again. */
export const away = shared(null);

/** A part of a path. Throws Problem for dots alone: a browser takes them for a step up, however they are written. */
export function segment(text) {
  if (isDots(text)) throw new Problem(0, { detail: `A browser cannot ask for the name "${text}": use the command.` });
  return encodeURIComponent(text);
}

/** A rejection as a value {rejected}: one queue that is gone by now, or cannot be read, hides none of the others. */
export const orRejection = (answer) =>
  answer.catch((error) => {
    if (!(error instanceof Problem)) throw error;
    return { rejected: error };
  });

/** One request; `path` begins with a slash. Throws Problem and Away.
 *
 * One that changes something has an Idempotency-Key, and is sent once more if no answer came: it is done once. */
export async function request(method, path, { query = {}, body, signal } = {}) {
  const url = new URL(`api${path}`, document.baseURI);
  for (const [name, value] of Object.entries({ tenant: tenant(), ...query })) {
    if (value !== undefined && value !== null && value !== "") url.searchParams.set(name, value);
  }
  const headers = {};
  const once = method !== "GET" && !path.endsWith("/preview") && !body?.dry_run;
  if (method !== "GET") Object.assign(headers, { "X-Duecourse-Page": "1", "Content-Type": "application/json" });
  if (once) headers["Idempotency-Key"] = `"${newKey()}"`;
  const options = {
    method,
    headers,
    credentials: "same-origin",
    cache: "no-store",
    body: body === undefined ? undefined : JSON.stringify(body),
  };
  const { status, text } = await answered(url, options, signal, once ? 2 : 1);
  const found = parsed(text);
  // A gateway before the API has a 401 of its own, such as for a token that expired: its text says so.
  if (status === 401)
    throw gone(
      found?.type === PAGE_KEY ? NO_KEY : textOf(found) || "The API rejects the credentials of the page's server.",
    );
  if (status >= 502 || found === null) throw gone(textOf(found) || `The answer has status ${status}.`);
  if (away.get()) away.set(null);
  if (status >= 400) throw new Problem(status, found);
  return found;
}

async function answered(url, options, signal, tries) {
  const limit = new AbortController();
  const timer = setTimeout(() => limit.abort(), PATIENCE_MS);
  try {
    const answer = await fetch(url, {
      ...options,
      signal: signal ? AbortSignal.any([signal, limit.signal]) : limit.signal,
    });
    return { status: answer.status, text: await answer.text() };
  } catch (error) {
    if (signal?.aborted) throw error;
    if (tries > 1) return await answered(url, options, signal, tries - 1);
    throw gone(
      limit.signal.aborted
        ? `There was no answer within ${PATIENCE_MS / 1000} seconds.`
        : "The page's server does not answer.",
    );
  } finally {
    clearTimeout(timer);
  }
}

const newKey = () =>
  [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");

export const get = (path, query, signal) => request("GET", path, { query, signal });
export const post = (path, body, query) => request("POST", path, { body: body ?? {}, query });
export const patch = (path, body, query) => request("PATCH", path, { body, query });
export const remove = (path, query) => request("DELETE", path, { query });

/** Note that the place is away; each further failure doubles the time to the next try. */
function gone(text) {
  const before = away.get();
  const wait = before ? Math.min(before.wait * 2, MAX_WAIT_MS) : 2_000;
  away.set({ since: before?.since ?? Date.now(), text, wait, next: Date.now() + wait });
  return new Away(text);
}

function parsed(text) {
  if (!text) return {};
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

/** Documents of all pages of a list, up to `most` requests; `each` sees every one as it comes. */
export async function pages(load, following, most, each = () => {}) {
  const found = [];
  let next = null;
  for (let n = 0; n < most; n++) {
    const page = await load(next);
    found.push(page);
    each(found);
    next = following(page);
    if (!next) break;
  }
  return { pages: found, next };
}

export const taskPath = (id, verb = "") => `/tasks/${segment(id)}${verb}`;
export const queuePath = (queue, verb = "") => `/queues/${segment(queue)}${verb}`;
export const schedulePath = (id, verb = "") => `/schedules/${segment(id)}${verb}`;
export const reminderPath = (id, verb = "") => `/reminders/${segment(id)}${verb}`;

/** All queues, page by page; `from` is `get`, or that of a load that repeats. */
export async function allQueues(from = get) {
  const { pages: found } = await pages(
    (after) => from("/queues", { after }),
    (page) => page.next_after,
    20,
  );
  return found.flatMap((page) => page.queues);
}
