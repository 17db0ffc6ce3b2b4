// Queries by id: the answer so far, and the task that asks.
import { allQueues, segment } from "./api.mjs";
import { count, html, useState } from "./lib.mjs";
import { useLive } from "./live.mjs";
import { Chip, Empty, Facts, Json, Panel, QueueLink, Table, TaskLink, Waiting } from "./parts.mjs";
import { go, to } from "./route.mjs";
import { Act } from "./session.mjs";
import { cancel, runNow } from "./task_actions.mjs";
import { Time } from "./times.mjs";

const PREFIX = "query:";
const KINDS = { done: "done", processing: "scheduled", failed: "dead" };

export function Queries() {
  const [id, setId] = useState("");
  const live = useLive("queues", allQueues, 10_000);
  return html`<div class="title"><h1>Queries</h1></div>
    <form
      class="filters"
      role="search"
      aria-label="Open a query"
      onSubmit=${(event) => {
        event.preventDefault();
        if (id.trim()) go(to(["queries", id.trim()]));
      }}
    >
      <label
        >Id${" "}
        <input
          value=${id}
          placeholder="q-…@host"
          onInput=${(event) => setId(event.target.value)}
          spellcheck="false" /></label
      ><button type="submit">Open</button>
    </form>
    <${Waiting} live=${live}
      >${() => {
        const hosts = live.data.filter((one) => one.queue.startsWith(PREFIX));
        return hosts.length
          ? html`<${Panel} title="By host" aside=${html`<span class="soft">${count(hosts.length, "host")}</span>`}
              ><${Table}
                label="Hosts"
                columns=${[["Host"], ["Being asked", "n"], ["Answered", "n"], ["Given up", "n"], ["Oldest overdue"]]}
                >${hosts.map(
                  (one) =>
                    html`<tr key=${one.queue}>
                      <th scope="row">
                        <a href=${to(["tasks"], { queue: one.queue })}>${one.queue.slice(PREFIX.length)}</a>
                      </th>
                      <td class="n">${one.tasks.scheduled + one.tasks.leased}</td>
                      <td class="n">${one.tasks.done}</td>
                      <td class="n">${one.tasks.dead}</td>
                      <td>${one.oldest_overdue}</td>
                    </tr>`,
                )}<//
              ><//
            >`
          : html`<${Empty}>No query so far.<//>`;
      }}<//
    >`;
}

export function Query({ id }) {
  const live = useLive(`query ${id}`, (from) => from(`/queries/${segment(id)}`), 2_000);
  return html`<${Waiting} live=${live}
    >${() => {
      const one = live.data,
        task = { id: one.task, queue: one.queue, state: "scheduled", due_at: one.due_at };
      return html`<div class="title">
          <h1 class="id">${id}</h1>
          <${Chip} kind=${KINDS[one.status]}>${one.status}<//>
          <div class="buttons">
            ${one.status === "processing" && html`<${Act} onClick=${() => runNow(task)}>Ask now…<//><${Act} kind="danger" onClick=${() => cancel(task)}>Stop…<//>`}
          </div>
        </div>
        ${one.error && html`<pre class="error" tabindex="0" role="region" aria-label="Error of the newest call that failed">${one.error}</pre>`}
        <div class="columns">
          <${Panel} title="Facts"
            ><${Facts}
              facts=${[
                ["Fetched", one.fetched_at && html`<${Time} at=${one.fetched_at} how="both" />`],
                ["Asks next", one.due_at && html`<${Time} at=${one.due_at} how="both" />`],
                ["Queue", html`<${QueueLink} queue=${one.queue} />`],
                ["Task", html`<${TaskLink} id=${one.task} queue=${one.queue} />`],
              ]}
          /><//>
          ${one.data === null ? html`<${Panel} title="Answer"><${Empty}>No answer yet.<//><//>` : html`<${Json} title="Answer" value=${one.data} />`}
        </div>`;
    }}<//
  >`;
}
