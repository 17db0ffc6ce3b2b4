// Pieces that views are made of.
import { Away } from "./api.mjs";
import { html, number, useEffect, useLayoutEffect, useRef, useState } from "./lib.mjs";
import { to } from "./route.mjs";

export const STATES = { scheduled: "scheduled", leased: "running", done: "done", dead: "dead", cancelled: "cancelled" };

/** A state in a word and a colour. */
export const Chip = ({ kind, children, title }) => html`<span class="chip ${kind}" title=${title}>${children}</span>`;
export const State = ({ state }) => html`<${Chip} kind=${state}>${STATES[state] ?? state}<//>`;

export const TaskLink = ({ id, queue, children }) =>
  html`<a class="id" href=${to(["tasks", id], { queue })}>${children ?? id}</a>`;
export const QueueLink = ({ queue }) => html`<a href=${to(["queues", queue])}>${queue}</a>`;

/** What stands where data is not there yet, or could not be read. */
export function Waiting({ live, children }) {
  if (live.data !== undefined) return children();
  if (live.error) return html`<${Failure} error=${live.error} />`;
  return html`<p class="empty" role="status">Loading…</p>`;
}

export function Failure({ error }) {
  const title =
    error instanceof Away
      ? "No answer"
      : error.document?.title && error.document.title !== error.message
        ? error.document.title
        : "";
  return html`<div class="note bad" role="alert">${title && html`<strong>${title}</strong> `}${error.message}</div>`;
}

export const Empty = ({ children }) => html`<p class="empty">${children}</p>`;

/** A part of a view under a heading. */
export const Panel = ({ title, aside, children, class: name = "" }) =>
  html`<section class="panel ${name}">
    <header>
      <h2>${title}</h2>
      ${aside && html`<div class="aside">${aside}</div>`}
    </header>
    ${children}
  </section>`;

/** Names and values; a value that is not there is left out. */
export const Facts = ({ facts }) =>
  html`<dl class="facts">
    ${facts
      .filter(([, value]) => value !== undefined && value !== null && value !== "")
      .map(
        ([name, value]) =>
          html`<div key=${name}>
            <dt>${name}</dt>
            <dd>${value}</dd>
          </div>`,
      )}
  </dl>`;

/** A table with a head; cells are texts or nodes, numbers stand at the right. */
export function Table({ label, columns, children, class: name = "" }) {
  return html`<div class="scroll" tabindex="0" role="region" aria-label=${label}>
    <table class=${name}>
      <thead>
        <tr>
          ${columns.map(([title, kind]) => html`<th scope="col" class=${kind}>${title || html`<span class="hidden">Actions</span>`}</th>`)}
        </tr>
      </thead>
      <tbody>
        ${children}
      </tbody>
    </table>
  </div>`;
}

export const Number = ({ n, kind = "" }) => html`<span class=${n ? kind : "none"}>${number(n)}</span>`;

/** How much of a limit is used. */
export const Meter = ({ used, limit }) =>
  limit === null || limit === undefined
    ? html`<span class=${used ? "" : "none"}>${number(used)}</span>`
    : html`<span class="meter" title="${used} of at most ${limit}"
        ><meter
          min="0"
          max=${limit}
          low=${limit * 0.8}
          high=${limit - 0.5}
          optimum="0"
          value=${used}
          aria-label="running, of at most ${limit}"
        ></meter>${" "}
        ${number(used)}<span class="of">/${number(limit)}</span></span
      >`;

/** A choice of a few, as buttons. */
export const Choice = ({ label, value, options, onChange }) =>
  html`<div class="choice" role="group" aria-label=${label}>
    ${options.map(([key, text]) => html`<button type="button" aria-pressed=${value === key} onClick=${() => onChange(key)}>${text}</button>`)}
  </div>`;

// A list of any length: rows have one height, and only those that are seen are in the page.

const ROW = 30;
const BESIDE = 12;

/** `rows` in a window; `row(item)` are its cells, `columns` name them with a class for their width. `onEnd` asks for more. */
export function Rows({ label, rows, columns, row, id, onEnd, onOpen, chosen, onChoose, total }) {
  const box = useRef(null);
  const [first, setFirst] = useState(0);
  const [room, setRoom] = useState(40);
  const [active, setActive] = useState(-1);
  const look = () => {
    const start = Math.max(0, Math.floor(box.current.scrollTop / ROW) - BESIDE);
    // Steps of some rows: one that moves by a pixel is not drawn anew.
    setFirst(start - (start % 6));
    if (onEnd && box.current.scrollTop + box.current.clientHeight > (rows.length - 40) * ROW) onEnd();
  };
  useLayoutEffect(() => {
    const size = () => setRoom(Math.ceil(box.current.clientHeight / ROW) + 2 * BESIDE + 6);
    const watch = new ResizeObserver(size);
    watch.observe(box.current);
    size();
    return () => watch.disconnect();
  }, []);
  useEffect(look, [rows.length]);
  const move = (to) => {
    const next = Math.max(0, Math.min(rows.length - 1, to));
    setActive(next);
    const top = next * ROW,
      seen = box.current.scrollTop,
      height = box.current.clientHeight - ROW;
    if (top < seen) box.current.scrollTop = top;
    else if (top + ROW > seen + height) box.current.scrollTop = top + ROW - height;
  };
  const keys = (event) => {
    if (event.target !== box.current || event.ctrlKey || event.metaKey || event.altKey) return;
    const page = Math.floor(box.current.clientHeight / ROW) - 2;
    const moves = {
      ArrowDown: active + 1,
      j: active + 1,
      ArrowUp: active - 1,
      k: active - 1,
      PageDown: active + page,
      PageUp: active - page,
      Home: 0,
      End: rows.length - 1,
    };
    if (event.key in moves) move(moves[event.key]);
    else if (event.key === "Enter" && rows[active]) onOpen?.(rows[active]);
    else if ((event.key === "x" || event.key === " ") && rows[active] && onChoose) onChoose(rows[active]);
    else return;
    event.preventDefault();
  };
  const seen = rows.slice(first, first + room);
  return html`<div
    class="rows"
    role="table"
    tabindex="0"
    aria-label=${label}
    aria-rowcount=${total ?? rows.length + 1}
    ref=${box}
    onScroll=${look}
    onKeyDown=${keys}
  >
    <div class="row head" role="row" aria-rowindex="1">
      ${onChoose && html`<span role="columnheader" class="pick"><span class="hidden">Chosen</span></span>`}${columns.map(([title, name]) => html`<span role="columnheader" class=${name}>${title}</span>`)}
    </div>
    <div class="space" role="rowgroup" style=${{ height: `${rows.length * ROW}px` }}>
      ${seen.map((item, n) => {
        const at = first + n;
        const picked = chosen?.has(id(item));
        return html`<div
          key=${id(item)}
          role="row"
          aria-rowindex=${at + 2}
          class="row ${at === active ? "active" : ""} ${picked ? "picked" : ""}"
          style=${{ top: `${at * ROW}px` }}
          onClick=${() => setActive(at)}
          onDblClick=${() => onOpen?.(item)}
        >
          ${onChoose && html`<span role="cell" class="pick"><input type="checkbox" checked=${picked} aria-label="Choose ${id(item)}" onChange=${() => onChoose(item)} /></span>`}
          ${row(item).map((cell, k) => html`<span role="cell" class=${columns[k][1]}>${cell}</span>`)}
        </div>`;
      })}
    </div>
  </div>`;
}

// JSON as a tree that folds.

const LONG = 240;
const MANY = 50;
const MASK = "•••";

function Tree({ value, name, open = true, depth = 0 }) {
  const label = name === undefined ? null : html`<span class="key">${name}</span><span class="colon">: </span>`;
  if (value === null || typeof value !== "object")
    return html`<div class="leaf">${label}<${Leaf} value=${value} /></div>`;
  const list = Array.isArray(value);
  const entries = list ? value.map((one, n) => [n, one]) : Object.entries(value);
  if (!entries.length) return html`<div class="leaf">${label}<span class="none">${list ? "[ ]" : "{ }"}</span></div>`;
  return html`<${Branch} ...${{ label, list, entries, open: open && depth < 3 && entries.length <= MANY, depth }} />`;
}

function Branch({ label, list, entries, open, depth }) {
  const [shown, setShown] = useState(open);
  const [most, setMost] = useState(MANY);
  const size = list
    ? `${number(entries.length)} item${entries.length === 1 ? "" : "s"}`
    : `${number(entries.length)} field${entries.length === 1 ? "" : "s"}`;
  return html`<details
    open=${shown}
    onToggle=${(event) => {
      if (event.target === event.currentTarget) setShown(event.currentTarget.open);
    }}
  >
    <summary>${label}<span class="size">${list ? "[" : "{"} ${size} ${list ? "]" : "}"}</span></summary>
    ${
      shown &&
      html`<div class="branch">
        ${entries.slice(0, most).map(([key, one]) => html`<${Tree} key=${key} name=${key} value=${one} depth=${depth + 1} />`)}
        ${entries.length > most && html`<button class="link" onClick=${() => setMost(most + 500)}>${number(entries.length - most)} more</button>`}
      </div>`
    }
  </details>`;
}

function Leaf({ value }) {
  const [whole, setWhole] = useState(false);
  if (typeof value !== "string")
    return html`<span class=${value === null ? "none" : typeof value}>${String(value)}</span>`;
  if (value === MASK) return html`<span class="mask" title="The API never shows this value.">${MASK} masked</span>`;
  if (value.length > LONG && !whole) {
    return html`<span class="string">${marked(value.slice(0, LONG))}…</span>${" "}
      <button class="link" onClick=${() => setWhole(true)}>${number(value.length - LONG)} more characters</button>`;
  }
  return html`<span class="string">${marked(value)}</span>`;
}

const marked = (text) =>
  text
    .split(MASK)
    .flatMap((part, n) =>
      n ? [html`<span class="mask" title="The API never shows this value.">${MASK}</span>`, part] : [part],
    );

/** JSON with a button that copies it. */
export function Json({ value, title }) {
  const [copied, setCopied] = useState(false);
  const copy = async () => {
    await navigator.clipboard.writeText(JSON.stringify(value, null, 2));
    setCopied(true);
  };
  return html`<${Panel}
    title=${title}
    aside=${navigator.clipboard && html`<button class="quiet" onClick=${copy}>${copied ? "Copied" : "Copy"}</button>`}
    ><div class="tree"><${Tree} value=${value} /></div
  ><//>`;
}
