// Tasks by filters: rows of any number over the API's cursors.
import { allQueues, get } from "./api.mjs";
import { count, html, number, useEffect, useMemo, useRef, useState } from "./lib.mjs";
import { useLive } from "./live.mjs";
import { Empty, Failure, Rows, STATES, State, TaskLink } from "./parts.mjs";
import { filter, go, tenant, to } from "./route.mjs";
import { Act, session } from "./session.mjs";
import { actOnAll, actOnChosen } from "./task_actions.mjs";
import { Time } from "./times.mjs";

const PAGE = 100;
const AHEAD = 4;

/** Pages of `/tasks` by a filter: rows, `ahead` pages at first, more of them on demand. */
export function useTasks(wanted, ahead = AHEAD) {
  const key = JSON.stringify([tenant(), wanted]);
  const [list, setList] = useState({ key, rows: [], next: null, loading: true });
  const now = useRef(list);
  const load = async (from) => {
    let state = from;
    for (let n = 0; n < ahead; n++) {
      try {
        const page = await get("/tasks", { ...wanted, limit: PAGE, cursor: state.next });
        if (now.current.key !== key) return;
        // What a row does not show is not kept: of 100,000 tasks that would be much.
        const rows = page.tasks.map((task) => ({
          id: task.id,
          queue: task.queue,
          kind: task.kind,
          state: task.state,
          due_at: task.due_at,
          attempt: task.attempt,
          max_attempts: task.max_attempts,
          run: task.run,
          error: task.error,
          ended_at: task.history.at(-1)?.ended_at,
        }));
        // In place: of 100,000 rows, a copy for each page would be felt.
        state.rows.push(...rows);
        state = { key, rows: state.rows, next: page.next_cursor, loading: !!page.next_cursor && n + 1 < ahead };
      } catch (error) {
        state = { ...state, loading: false, error };
      }
      if (now.current.key !== key) return;
      now.current = state;
      setList(state);
      if (!state.next || state.error) return;
    }
  };
  const reload = () => {
    now.current = { key, rows: [], next: null, loading: true };
    setList(now.current);
    load(now.current);
  };
  useEffect(reload, [key]);
  const more = () => {
    if (now.current.loading || !now.current.next || now.current.key !== key) return;
    now.current = { ...now.current, loading: true, error: null };
    setList(now.current);
    load(now.current);
  };
  return { ...list, more, reload };
}

/** Tasks that were chosen, by id. */
export function useChosen(key) {
  const [chosen, setChosen] = useState(new Map());
  useEffect(() => setChosen(new Map()), [key]);
  const choose = (task) =>
    setChosen((before) => {
      const after = new Map(before);
      if (!after.delete(task.id)) after.set(task.id, task);
      return after;
    });
  return {
    chosen,
    choose,
    clear: () => setChosen(new Map()),
    all: (rows) => setChosen(new Map(rows.map((task) => [task.id, task]))),
  };
}

export const TASK_COLUMNS = [
  ["Task", "wide"],
  ["State", "state"],
  ["Kind", "kind"],
  ["Due or ended", "time"],
  ["Attempt", "n"],
  ["Error", "rest"],
];
const ended = { done: 1, dead: 1, cancelled: 1 };
export const taskRow = (task) => [
  html`<${TaskLink} id=${task.id} queue=${task.queue} />`,
  html`<${State} state=${task.state} />`,
  task.kind,
  html`<${Time} at=${ended[task.state] ? (task.ended_at ?? task.due_at) : task.due_at} how="both" />`,
  `${task.attempt}/${task.max_attempts}`,
  html`<span title=${task.error}>${task.error ?? ""}</span>`,
];
export const openTask = (task) => go(to(["tasks", task.id], { queue: task.queue }));

const NAMES = ["kind", "group", "error", "since"];

export function Tasks({ query }) {
  const queues = useLive("queues", allQueues, 10_000);
  const queue =
    query.queue ??
    (queues.data && (queues.data.some((one) => one.queue === "default") ? "default" : queues.data[0]?.queue)) ??
    "";
  const wanted = {
    queue,
    state: query.state ?? "",
    kind: query.kind ?? "",
    group: query.group ?? "",
    error: query.error ?? "",
    since: query.since ?? "",
  };
  const found = queues.data?.find((one) => one.queue === queue);
  if (!queue)
    return html`<h1>Tasks</h1>
      ${queues.error ? html`<${Failure} error=${queues.error} />` : queues.data ? html`<${Empty}>No queue yet: the first task makes one.<//>` : html`<p class="empty" role="status">Loading…</p>`}`;
  return html`<div class="title"><h1>Tasks</h1></div>
    <${Filters} wanted=${wanted} queues=${queues.data} found=${found} /><${List}
      key=${JSON.stringify(wanted)}
      wanted=${wanted}
      found=${found}
    />`;
}

function Filters({ wanted, queues, found }) {
  const [texts, setTexts] = useState(wanted);
  useEffect(() => setTexts(wanted), [JSON.stringify(wanted)]);
  useEffect(() => {
    const timer = setTimeout(() => {
      const changes = Object.fromEntries(
        NAMES.filter((name) => texts[name].trim() !== wanted[name]).map((name) => [name, texts[name].trim()]),
      );
      if (Object.keys(changes).length) filter(changes);
    }, 400);
    return () => clearTimeout(timer);
  }, [JSON.stringify(texts)]);
  const labels = {
    kind: ["Kind", ""],
    group: ["Group", "such as a reminder's id"],
    error: ["Error", "# is any text"],
    since: ["Since", "PT1H, or an instant"],
  };
  const counted = found && {
    scheduled: found.tasks.scheduled,
    leased: found.tasks.leased,
    dead: found.tasks.dead,
    done: found.tasks.done,
  };
  return html`<form
    class="filters"
    role="search"
    aria-label="Filter tasks"
    onSubmit=${(event) => event.preventDefault()}
  >
    <label
      >Queue${" "}
      <select value=${wanted.queue} onChange=${(event) => filter({ queue: event.target.value })}>
        ${(queues ?? []).map((one) => html`<option value=${one.queue} selected=${one.queue === wanted.queue}>${one.queue}</option>`)}${!found && html`<option value=${wanted.queue} selected>${wanted.queue}</option>`}
      </select></label
    >
    <div class="choice" role="group" aria-label="State">
      ${[["", "all"], ...Object.entries(STATES)].map(([state, text]) => html`<button type="button" aria-pressed=${wanted.state === state} onClick=${() => filter({ state })}>${text}${counted?.[state] !== undefined && html` <span class="soft">${number(counted[state])}</span>`}</button>`)}
    </div>
    ${NAMES.map((name) => html`<label>${labels[name][0]} <input name=${name} value=${texts[name]} placeholder=${labels[name][1]} spellcheck="false" autocomplete="off" onInput=${(event) => setTexts({ ...texts, [name]: event.target.value })} /></label>`)}
  </form>`;
}

const given = (wanted, names) =>
  Object.fromEntries(names.filter((name) => wanted[name]).map((name) => [name, wanted[name]]));
const inWords = (filter) =>
  html`Of <code>${filter.queue}</code>:${" "}
    ${Object.entries(filter)
      .filter(([name]) => name !== "queue")
      .map(([name, value]) => html`${name} <q>${value}</q> `)}`;

function List({ wanted, found }) {
  const list = useTasks(wanted);
  const { chosen, choose, clear, all } = useChosen(list.key);
  const rows = list.rows;
  const picked = useMemo(() => [...chosen.values()], [chosen]);
  const after = () => {
    clear();
    list.reload();
  };
  const state = wanted.state;
  const cancels = (state === "scheduled" || state === "") && given(wanted, ["kind", "group", "error"]);
  const cancelAll = cancels && (Object.keys(cancels).length || state) && (state || Object.keys(cancels).length);
  const purges = ["done", "cancelled", "dead", "scheduled"].includes(state) && !wanted.since;
  const purge = { state, ...given(wanted, ["kind", "group", "error"]) };
  const cancelFilter = { ...(state && { state }), ...cancels };
  return html`<div class="bar" role="toolbar" aria-label="Actions on tasks">
      <span role="status"
        >${list.loading && !rows.length ? "Loading…" : html`${count(rows.length, "task")}${list.next ? " and more" : ""}${list.loading ? ", loading…" : ""}${chosen.size ? html`, <strong>${number(chosen.size)} chosen</strong>` : ""}`}</span
      >
      <button type="button" class="quiet" onClick=${list.reload}>Reload</button>
      ${
        chosen.size > 0
          ? html`${picked.some((one) => one.state === "dead") && html`<${Act} onClick=${() => actOnChosen("replay", picked, after)}>Replay…<//><${Act} kind="danger" onClick=${() => actOnChosen("delete", picked, after)}>Delete…<//>`}
              ${picked.some((one) => one.state === "scheduled") && html`<${Act} onClick=${() => actOnChosen("run", picked, after)}>Run now…<//><${Act} kind="danger" onClick=${() => actOnChosen("cancel", picked, after)}>Cancel…<//>`}
              <button type="button" class="quiet" onClick=${clear}>Choose none</button>`
          : html`${session.get()?.read_only === false && rows.length > 0 && html`<button type="button" class="quiet" onClick=${() => all(rows)}>Choose these ${number(rows.length)}</button>`}
            ${rows.length > 0 && cancelAll && !wanted.since && html`<${Act} kind="quiet" onClick=${() => actOnAll("cancel", wanted.queue, cancelFilter, inWords({ queue: wanted.queue, ...cancelFilter }), list.reload)}>Cancel all that match…<//>`}
            ${rows.length > 0 && purges && html`<${Act} kind="quiet" onClick=${() => actOnAll("purge", wanted.queue, purge, inWords({ queue: wanted.queue, ...purge }), list.reload)}>Delete all that match…<//>`}`
      }
    </div>
    ${list.error && html`<${Failure} error=${list.error} />`}
    ${!list.loading && !list.error && !rows.length ? html`<${Empty}>No task fits${found?.tasks.scheduled || found?.tasks.done || found?.tasks.dead ? ": change the filters above" : ""}.<//>` : html`<${Rows} label="Tasks" rows=${rows} columns=${TASK_COLUMNS} row=${taskRow} id=${(task) => task.id} onEnd=${list.more} onOpen=${openTask} chosen=${chosen} onChoose=${session.get()?.read_only === false ? choose : undefined} total=${list.next ? -1 : rows.length + 1} />`}`;
}
