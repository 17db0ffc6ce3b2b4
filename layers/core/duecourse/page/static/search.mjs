// Search by id: tasks and schedules of every queue, reminders, queries.
import { Problem, allQueues, get, reminderPath, schedulePath, segment, taskPath } from "./api.mjs";
import { html, inLanes, number, useEffect, useState } from "./lib.mjs";
import { Empty, Failure, State } from "./parts.mjs";
import { tenant, to } from "./route.mjs";
import { Time } from "./times.mjs";

/** Characters of every id and name: another text, such as a sentence that was pasted, is asked for nowhere. */
const ID = /^[\w.:@~-]{1,400}$/;

/** What is found under an id; a 404 is no answer of use, any other failure is one. */
async function look(load) {
  try {
    return await load();
  } catch (error) {
    if (error instanceof Problem && [404, 422].includes(error.status)) return null;
    throw error;
  }
}

export function Search({ query }) {
  const id = (query.q ?? "").trim();
  const [state, setState] = useState({ found: [], looked: 0, total: 0 });
  useEffect(() => {
    const abort = new AbortController();
    const ask = (path, words) => get(path, words, abort.signal);
    const add = (one) =>
      !abort.signal.aborted && one && setState((before) => ({ ...before, found: [...before.found, one] }));
    setState({ found: [], looked: 0, total: 0 });
    if (!id) return undefined;
    if (!ID.test(id)) {
      setState({ found: [], looked: 1, total: 1 });
      return undefined;
    }
    (async () => {
      try {
        const queues = (await allQueues(ask)).map((one) => one.queue);
        const tries = [
          async () =>
            add(
              await look(async () => {
                const one = await ask(reminderPath(id));
                return { kind: "reminder", label: one.subject, address: to(["reminders", id]), at: one.starts_at };
              }),
            ),
          ...(id.startsWith("q-")
            ? [
                async () =>
                  add(
                    await look(async () => {
                      const one = await ask(`/queries/${segment(id)}`);
                      return { kind: "query", label: one.status, address: to(["queries", id]), at: one.fetched_at };
                    }),
                  ),
              ]
            : []),
          ...(queues.includes(id) ? [async () => add({ kind: "queue", label: "", address: to(["queues", id]) })] : []),
          ...queues.flatMap((queue) => [
            async () =>
              add(
                await look(async () => {
                  const { task } = await ask(taskPath(id), { queue });
                  return {
                    kind: "task",
                    queue,
                    label: task.kind,
                    state: task.state,
                    address: to(["tasks", id], { queue }),
                    at: task.due_at,
                  };
                }),
              ),
            async () =>
              add(
                await look(async () => {
                  const { schedule } = await ask(schedulePath(id), { queue });
                  return {
                    kind: "schedule",
                    queue,
                    label: schedule.kind,
                    address: to(["schedules", id], { queue }),
                    at: schedule.next[0]?.at,
                  };
                }),
              ),
          ]),
        ];
        setState((before) => ({ ...before, total: tries.length }));
        await inLanes(
          tries,
          async (look) => {
            await look();
            if (!abort.signal.aborted) setState((before) => ({ ...before, looked: before.looked + 1 }));
          },
          abort.signal,
        );
      } catch (error) {
        if (!abort.signal.aborted) setState((before) => ({ ...before, error }));
      }
    })();
    return () => abort.abort();
  }, [id, tenant()]);
  if (!id)
    return html`<h1>Search</h1>
      <${Empty}
        >Type an id above: of a task, schedule, reminder, query or queue. The key <kbd>/</kbd> leads there from
        everywhere.<//
      >`;
  const over = state.total > 0 && state.looked === state.total;
  return html`<h1>Search for <span class="id">${id}</span></h1>
    ${state.error && html`<${Failure} error=${state.error} />`}
    ${
      state.found.length > 0 &&
      html`<ul class="list panel">
        ${state.found.map((one) => html`<li key=${`${one.kind} ${one.queue}`}><a class="id" href=${one.address}>${one.kind} ${id}</a>${one.queue && html`<span class="soft">queue ${one.queue}</span>`}<span>${one.label}</span>${one.state && html`<${State} state=${one.state} />`}<span class="right">${one.at && html`<${Time} at=${one.at} how="both" />`}</span></li>`)}
      </ul>`
    }
    <p class="soft" role="status">
      ${over ? (state.found.length ? `${number(state.found.length)} found.` : "No task, schedule, reminder, query or queue has this id. Ids are compared whole; an ended task is forgotten after its retention.") : state.error ? "" : html`Looking… ${state.total ? `${number(state.looked)} of ${number(state.total)}` : ""}`}
    </p>`;
}
