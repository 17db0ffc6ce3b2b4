// One task: why it waits, its life on an axis of time, its payload and result, and what may be done.
import { taskPath } from "./api.mjs";
import { count, html, number } from "./lib.mjs";
import { useLive } from "./live.mjs";
import { Facts, Json, Panel, QueueLink, State, Waiting } from "./parts.mjs";
import { Life } from "./plots.mjs";
import { go, to } from "./route.mjs";
import { Act } from "./session.mjs";
import { cancel, move, replay, runNow } from "./task_actions.mjs";
import { Sentence, Time, distance, span, useNow } from "./times.mjs";

const load = (id, queue) => async (from) => {
  const task = (await from(taskPath(id), { queue })).task;
  return { task, why: await from(taskPath(id, "/why"), { queue }) };
};

export function Task({ id, query }) {
  const queue = query.queue ?? "default";
  const live = useLive(`task ${queue} ${id}`, load(id, queue), 2_000);
  if (live.error?.status === 404 && live.data === undefined)
    return html`<h1 class="id">${id}</h1>
      <p class="note">${live.error.message} <a href=${to(["search"], { q: id })}>Look for it in every queue</a></p>`;
  return html`<${Waiting} live=${live}
    >${() => html`<${Shown} ...${live.data} gone=${live.error?.status === 404 && live.error} />`}<//
  >`;
}

function Shown({ task, why, gone }) {
  const now = useNow();
  const waits = why.waits;
  const late = task.state === "scheduled" && Date.parse(task.due_at) < now;
  return html`<div class="title">
      <h1 class="id">${task.id}</h1>
      <${State} state=${task.state} />
      <div class="buttons">
        ${task.state === "scheduled" && html`<${Act} kind="main" onClick=${() => runNow(task)}>Run now…<//>`}
        ${["scheduled", "leased"].includes(task.state) && html`<${Act} onClick=${() => move(task)}>Move…<//><${Act} kind="danger" onClick=${() => cancel(task)}>Cancel…<//>`}
        ${task.state === "dead" && html`<${Act} kind="main" onClick=${() => replay(task)}>Replay…<//><${Act} kind="danger" onClick=${() => cancel(task, () => go(to(["dead", task.queue])))}>Delete…<//>`}
      </div>
    </div>
    ${gone && html`<p class="note warn" role="alert">${gone.message} It was there when this page was opened.</p>`}
    ${
      task.state === "dead"
        ? html`<p class="why bad">
            <strong>Died</strong> <${Time} at=${task.history.at(-1)?.ended_at ?? task.due_at} how="both" /> in attempt${" "}
            ${task.attempt} of ${task.max_attempts}. <${Sentence} text=${waits.text} />
          </p>`
        : html`<p class="why ${late ? "warn" : ""}">
            <strong>Why:</strong>${" "}
            <${Sentence}
              text=${waits.text}
            />${task.state === "scheduled" && task.attempt > 1 && html` That is attempt ${task.attempt} of ${task.max_attempts}: the last run failed.`}${waits.until && html` <span class="soft">${distance(Date.parse(waits.until), now)}</span>`}
          </p>`
    }
    ${task.error && html`<pre class="error" tabindex="0" role="region" aria-label="Error of the newest failed run">${task.error}</pre>`}
    <${Panel}
      title="History"
      aside=${why.forgotten > 0 && html`<span class="soft">${count(why.forgotten, "older entry", "older entries")} forgotten</span>`}
    >
      <${Life} why=${why} task=${task} now=${now} />
      <div class="timeline" tabindex="0" role="region" aria-label="Entries, newest first">
        <ol>
          ${[...why.timeline].reverse().map(
            (one) =>
              html`<li key=${`${one.at} ${one.event} ${one.run}`} class="event ${one.event}">
                <${Time} at=${one.at} /><span
                  ><${Sentence}
                    text=${one.text}
                  />${one.times > 1 ? html` <span class="soft">${number(one.times)} times</span>` : ""}${one.by && one.event !== "added" ? html` <span class="soft">by ${one.by}</span>` : ""}</span
                >
              </li>`,
          )}
        </ol>
      </div><//
    >
    <div class="columns">
      <${Panel} title="Facts"
        ><${Facts}
          facts=${[
            ["Queue", html`<${QueueLink} queue=${task.queue} />`],
            ["Kind", html`<a href=${to(["tasks"], { queue: task.queue, kind: task.kind })}>${task.kind}</a>`],
            ["Due", html`<${Time} at=${task.due_at} how="both" />`],
            ["Added", html`<${Time} at=${task.created_at} how="both" />`],
            ["Attempt", `${task.attempt} of ${task.max_attempts}`],
            ["Runs", number(task.run)],
            ["Last run took", lastRun(task)],
            ["Notifies", task.notify_done && (task.notify_done.url ?? `target ${task.notify_done.target}`)],
            ...links(task),
          ]} /><//
      ><${Json} title="Payload" value=${task.payload} />
    </div>
    ${task.result !== undefined && html`<${Json} title="Result" value=${task.result} />`}
    ${
      task.history.length > 0 &&
      html`<${Panel}
        title="Runs"
        aside=${task.run > task.history.length && html`<span class="soft">the newest ${number(task.history.length)} of ${number(task.run)}</span>`}
        ><div class="scroll" tabindex="0" role="region" aria-label="Runs">
          <table>
            <thead>
              <tr>
                <th class="n">Run</th>
                <th>Outcome</th>
                <th>Began</th>
                <th class="n">Took</th>
                <th>Detail</th>
              </tr>
            </thead>
            <tbody>
              ${[...task.history].reverse().map(
                (run) =>
                  html`<tr key=${run.run}>
                    <td class="n">${run.run}</td>
                    <td><span class="outcome ${run.outcome}">${run.outcome}</span></td>
                    <td><${Time} at=${run.claimed_at} /></td>
                    <td class="n">
                      ${run.claimed_at ? span(Date.parse(run.ended_at) - Date.parse(run.claimed_at)) : "–"}
                    </td>
                    <td class="detail">${run.detail ?? ""}</td>
                  </tr>`,
              )}
            </tbody>
          </table>
        </div><//
      >`
    }`;
}

function lastRun(task) {
  const last = task.history.at(-1);
  return last?.claimed_at ? span(Date.parse(last.ended_at) - Date.parse(last.claimed_at)) : "";
}

const OCCURRENCE = /^(.+)@(\d{4}-\d\d-\d\dT[\d:.]+Z)$/;
const NOTIFICATION = /^(.+)~\d+\.\d+~([nd])$/;

/** Schedule, reminder, query or task that a task belongs to, by its id and payload. */
function links(task) {
  const found = [];
  const of = OCCURRENCE.exec(task.id);
  if (of)
    found.push([
      "Schedule",
      html`<a class="id" href=${to(["schedules", of[1]], { queue: task.queue })}>${of[1]}</a>, for${" "}
        <${Time} at=${of[2]} />`,
    ]);
  if (task.queue === "reminders" && typeof task.payload?.reminder === "string")
    found.push([
      "Reminder",
      html`<a class="id" href=${to(["reminders", task.payload.reminder])}>${task.payload.reminder}</a>`,
    ]);
  if (task.id.startsWith("q-") && task.queue.startsWith("query:"))
    found.push(["Query", html`<a class="id" href=${to(["queries", task.id])}>${task.id}</a>`]);
  const tells = NOTIFICATION.exec(task.id);
  if (tells)
    found.push(["Notification of", html`<a class="id" href=${to(["search"], { q: tells[1] })}>${tells[1]}</a>`]);
  return found;
}
