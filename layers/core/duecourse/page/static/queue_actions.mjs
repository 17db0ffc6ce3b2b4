// What may be done with a queue: pause, resume, change its limits.
import { get, patch, queuePath } from "./api.mjs";
import { ask } from "./dialog.mjs";
import { count, html, number } from "./lib.mjs";
import { spanOf } from "./times.mjs";

const read = async (name, signal) => (await get(queuePath(name), {}, signal)).queue;
const overdue = (queue) =>
  queue.oldest_overdue === "PT0S"
    ? "Nothing is overdue."
    : `The oldest due task waits for ${spanOf(queue.oldest_overdue)}.`;

export const pauseQueue = (name) =>
  ask({
    title: `Pause ${name}`,
    confirm: "Pause",
    danger: true,
    plan: async (_, signal) => {
      const queue = await read(name, signal);
      if (queue.paused) return { nothing: true, text: "It is paused already." };
      return {
        text: `No further task is claimed until you resume it: ${count(queue.tasks.scheduled, "scheduled task")} and all that come wait. ${queue.tasks.leased ? `${count(queue.tasks.leased, "running task")} continue${queue.tasks.leased === 1 ? "s" : ""}.` : "None is running."}`,
      };
    },
    run: async () => {
      await patch(queuePath(name), { paused: true });
      return `${name} is paused.`;
    },
  });

export const resumeQueue = (name) =>
  ask({
    title: `Resume ${name}`,
    confirm: "Resume",
    plan: async (_, signal) => {
      const queue = await read(name, signal);
      if (!queue.paused) return { nothing: true, text: "It is not paused." };
      const limits = [
        queue.max_running && `at most ${number(queue.max_running)} at the same time`,
        queue.rate && `at most ${rateText(queue.rate)}`,
      ].filter(Boolean);
      return {
        text: `Due tasks are claimed at once, ${limits.length ? limits.join(" and ") : "without a limit of the queue"}. ${overdue(queue)} ${count(queue.tasks.scheduled, "task")} ${queue.tasks.scheduled === 1 ? "is" : "are"} scheduled, due ones among them.`,
      };
    },
    run: async () => {
      await patch(queuePath(name), { paused: false });
      return `${name} is resumed.`;
    },
  });

export const rateText = (rate) => (rate ? `${number(rate.count)} in ${spanOf(rate.per)}` : "–");
const asText = (value) =>
  value === null || value === undefined
    ? ""
    : typeof value === "object"
      ? `${value.count}/${value.per}`
      : String(value);

/** Settings of a queue, each with its name, kind and hint. */
const SETTINGS = [
  ["max_running", "Running at the same time", "number", "Empty: no limit."],
  ["rate", "Rate", "text", "Such as 10/s or 100/PT1M. Empty: no limit."],
  ["tenant_max_running", "Running of one tenant", "number", "Empty: no limit."],
  ["priority", "Priority", "number", "0 to 9; the highest is claimed first."],
  ["retention", "Retention of ended tasks", "text", "Such as P7D. Empty: DUECOURSE_RETENTION."],
  ["lease", "Lease", "text", "Such as PT5M. Empty: DUECOURSE_LEASE."],
  ["tenant_max_pending", "Quota: tasks of a tenant", "number", "Empty: DUECOURSE_TENANT_QUOTAS."],
  ["tenant_max_bytes", "Quota: bytes of a tenant", "number", "Empty: DUECOURSE_TENANT_QUOTAS."],
  ["tenant_adds_per_minute", "Quota: adds a minute", "number", "Empty: DUECOURSE_TENANT_QUOTAS."],
  ["tenant_max_schedules", "Quota: schedules", "number", "Empty: DUECOURSE_TENANT_QUOTAS."],
];

/** Change the limits of a queue, all of them or `only` some. */
export function changeQueue(queue, only) {
  const shown = SETTINGS.filter(([name]) => !only || only.includes(name));
  const changes = (values) =>
    Object.fromEntries(
      shown
        .filter(([name]) => values[name].trim() !== asText(queue[name]))
        .map(([name, , kind]) => [
          name,
          values[name].trim() === "" ? null : kind === "number" ? Number(values[name]) : values[name].trim(),
        ]),
    );
  ask({
    title: `Change ${queue.queue}`,
    confirm: "Change",
    fields: shown.map(([name, label, type, hint]) => ({ name, label, type, hint, value: asText(queue[name]) })),
    plan: async (values, signal) => {
      const found = Object.entries(changes(values));
      if (!found.length) return { nothing: true, text: "No setting differs yet." };
      const now = await read(queue.queue, signal);
      return {
        text: html`<ul>
            ${found.map(([name, value]) => html`<li><code>${name}</code>: ${asText(now[name]) || "no limit"} → <strong>${value === null ? "default" : String(value)}</strong>${effect(name, value, now)}</li>`)}
          </ul>
          ${overdue(now)}`,
      };
    },
    run: async (values) => {
      const { queue: found } = await patch(queuePath(queue.queue), changes(values));
      return `${queue.queue} is changed. ${found.lagging ? `Shards ${found.lagging.join(", ")} follow at the next tick.` : `${count(found.tasks.leased, "task")} running now.`}`;
    },
  });
}

function effect(name, value, now) {
  if (name !== "max_running") return "";
  if (value === null) return ": as many run as workers take";
  const more = value - now.tasks.leased;
  return more > 0
    ? `: ${number(more)} more than now may run`
    : `: ${count(-more, "task")} over it run on to their end, and none is claimed until then`;
}
