// Tasks that fail and try again: nothing is dead or late yet, and an operator may want to know before it is.
import { orRejection } from "./api.mjs";
import { html, number } from "./lib.mjs";
import { QueueLink, TaskLink } from "./parts.mjs";
import { to } from "./route.mjs";
import { Time } from "./times.mjs";

const LOOKED = 6;
const LISTED = 100;
/** Failures in a row from which a task is spoken of: one alone is every day's. */
const IN_A_ROW = 2;

/** Tasks of a queue that failed in a row, among those that come due first; null for none. */
export async function failingOf(queue, get) {
  const { tasks, next_cursor: more } = await get("/tasks", { queue, state: "scheduled", limit: LISTED });
  const failed = tasks.filter((task) => task.error && task.attempt > IN_A_ROW);
  if (!failed.length) return null;
  const worst = failed.reduce((one, other) =>
    other.attempt / other.max_attempts > one.attempt / one.max_attempts ? other : one,
  );
  // What a row does not show is not kept.
  const { id, attempt, max_attempts, error, due_at } = worst;
  return {
    queue,
    count: failed.length,
    looked: tasks.length,
    more: !!more,
    worst: { id, attempt, max_attempts, error, due_at },
  };
}

/** Those of the queues with most tasks, of the queues where something ran within the last hour. */
export async function failing(queues, get) {
  const ran = queues.filter((one) => one.tasks.scheduled && !one.paused && one.lateness.p50 !== null);
  ran.sort((one, other) => other.tasks.scheduled - one.tasks.scheduled);
  const found = await Promise.all(ran.slice(0, LOOKED).map((one) => orRejection(failingOf(one.queue, get))));
  return found.filter((one) => one && !one.rejected);
}

export const Failing = ({ found: { queue, count, looked, more, worst } }) =>
  html`<li class="finding warn">
    <div class="what">
      <strong>${number(count)}</strong>${more ? ` of the next ${number(looked)}` : ""} ${count === 1 ? "fails" : "fail"} in <${QueueLink} queue=${queue} />, and ${count === 1 ? "tries" : "try"} again:${" "}
      <span class="error">${worst.error}</span>
    </div>
    <p>
      Nearest its end: <${TaskLink} id=${worst.id} queue=${queue} />, attempt ${worst.attempt} of ${worst.max_attempts}${" "}
      at <${Time} at=${worst.due_at} how="both" />. A task whose last attempt fails is dead.
    </p>
    <div class="buttons"><a class="button quiet" href=${to(["tasks"], { queue, state: "scheduled" })}>Look</a></div>
  </li>`;
