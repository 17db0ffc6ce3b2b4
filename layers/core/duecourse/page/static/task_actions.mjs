// What may be done with tasks: with one, with those that were chosen, with all that a filter finds.
import { get, patch, post, queuePath, remove, taskPath } from "./api.mjs";
import { ask, each, pause } from "./dialog.mjs";
import { count, html, number } from "./lib.mjs";
import { Sentence, Time, distance, fromInput, present, span, toInput } from "./times.mjs";

const why = async (task, signal) => (await get(taskPath(task.id, "/why"), { queue: task.queue }, signal)).waits;

export const runNow = (task) =>
  ask({
    title: `Run ${task.id} now`,
    confirm: "Run now",
    plan: async (_, signal) => {
      const waits = await why(task, signal);
      if (Date.parse(task.due_at) <= present())
        return { nothing: true, text: html`It is due already. <${Sentence} text=${waits.text} />` };
      return {
        text: html`It becomes due at once, in place of <${Time} at=${task.due_at} how="both" />. Limits and a pause of
          its queue still hold. Now: <${Sentence} text=${waits.text} />`,
      };
    },
    run: async () => {
      const { task: moved } = await patch(taskPath(task.id), { delay: 0 }, { queue: task.queue });
      return html`Due since <${Time} at=${moved.due_at} />.`;
    },
  });

export const move = (task) =>
  ask({
    title: `Move ${task.id}`,
    confirm: "Move",
    fields: [
      {
        name: "due",
        label: "New due time",
        type: "datetime-local",
        value: toInput(
          Math.max(present() + 3_600_000, Math.min(Date.parse(task.due_at), present() + 365 * 86_400_000)),
        ),
        hint: "In your time zone.",
      },
      ...(task.state === "leased"
        ? [
            {
              name: "force",
              label: "Take it from its worker",
              type: "checkbox",
              hint: "It runs now: its worker loses the lease, and what it settles late is rejected.",
            },
          ]
        : []),
    ],
    plan: async (values) => {
      if (!values.due) return { nothing: true, text: "Give a time." };
      if (task.state === "leased" && !values.force)
        return { nothing: true, text: "The task is running: it can be moved only by taking it from its worker." };
      const at = Date.parse(fromInput(values.due));
      return {
        text: html`It runs${" "}
          ${distance(at)}${task.state === "scheduled" && ` in place of ${distance(Date.parse(task.due_at))}`}: at${" "}
          <${Time} at=${at} />.`,
      };
    },
    run: async (values) => {
      const { task: moved } = await patch(
        taskPath(task.id),
        { due_at: fromInput(values.due), force: !!values.force },
        { queue: task.queue },
      );
      return html`Due at <${Time} at=${moved.due_at} how="both" />.`;
    },
  });

export const replay = (task) =>
  ask({
    title: `Replay ${task.id}`,
    confirm: "Replay now",
    plan: async (_, signal) => {
      const { task: found } = await get(taskPath(task.id), { queue: task.queue }, signal);
      if (found.state !== "dead") return { nothing: true, text: `It is ${found.state} by now.` };
      return {
        text: html`It is due at once, with all of its ${count(found.max_attempts, "attempt")}. It died of:${" "}
          <q>${found.error}</q>`,
      };
    },
    run: async () => {
      await post(taskPath(task.id, "/replay"), undefined, { queue: task.queue });
      return "It is scheduled again, due now.";
    },
  });

export const cancel = (task, after) =>
  ask({
    title: `${task.state === "dead" ? "Delete" : "Cancel"} ${task.id}`,
    confirm: task.state === "dead" ? "Delete" : "Cancel the task",
    danger: true,
    fields:
      task.state === "leased"
        ? [
            {
              name: "force",
              label: "Take it from its worker",
              type: "checkbox",
              hint: "It runs now: its worker loses the lease, and what it settles late is rejected.",
            },
          ]
        : [],
    plan: async (values, signal) => {
      const { task: found } = await get(taskPath(task.id), { queue: task.queue }, signal);
      if (found.state === "dead")
        return {
          text: html`The task and its history are deleted, and cannot be brought back. It died of:${" "}
            <q>${found.error}</q>`,
        };
      if (found.state === "leased" && !values.force)
        return { nothing: true, text: "The task is running: it can be cancelled only by taking it from its worker." };
      if (!["scheduled", "leased"].includes(found.state))
        return { nothing: true, text: `It is ${found.state} by now.` };
      return { text: html`It never runs again. <${Sentence} text=${(await why(task, signal)).text} />` };
    },
    run: async (values) => {
      await remove(taskPath(task.id), { queue: task.queue, ...(values.force && { force: true }) });
      after?.();
      return task.state === "dead" ? "The task is deleted." : "The task is cancelled.";
    },
  });

const VERBS = {
  replay: {
    word: "Replay",
    doing: "Replayed",
    states: ["dead"],
    act: (task) => post(taskPath(task.id, "/replay"), undefined, { queue: task.queue }),
  },
  run: {
    word: "Run",
    doing: "Moved",
    states: ["scheduled"],
    act: (task) => patch(taskPath(task.id), { delay: 0 }, { queue: task.queue }),
  },
  cancel: {
    word: "Cancel",
    doing: "Cancelled",
    states: ["scheduled"],
    danger: true,
    act: (task) => remove(taskPath(task.id), { queue: task.queue }),
  },
  delete: {
    word: "Delete",
    doing: "Deleted",
    states: ["dead"],
    danger: true,
    act: (task) => remove(taskPath(task.id), { queue: task.queue }),
  },
};

/** Act on the tasks that were chosen, one by one. */
export function actOnChosen(verb, tasks, after) {
  const { word, doing, states, danger, act } = VERBS[verb];
  const fit = tasks.filter((task) => states.includes(task.state));
  ask({
    title: `${word} ${count(tasks.length, "chosen task")}${verb === "run" ? " now" : ""}`,
    confirm: `${word} ${count(fit.length, "task")}`,
    danger,
    stops: true,
    plan: async () => ({
      nothing: !fit.length,
      text: `${count(fit.length, "task")} of ${number(tasks.length)} ${fit.length === 1 ? "is" : "are"} ${states.join(" or ")}${fit.length < tasks.length ? "; the others are left alone" : ""}. ${EFFECTS[verb]}`,
      more: html`<p class="ids">
        ${fit.slice(0, 12).map((task) => html`<code>${task.id}</code> `)}${fit.length > 12 && `and ${number(fit.length - 12)} more`}
      </p>`,
    }),
    run: async (_, control) => {
      const [done, failures] = await each(fit, act, control, doing).finally(() => after?.());
      return html`${doing} ${number(done)} of${" "}
      ${count(fit.length, "task")}${control.signal.aborted ? ", then stopped" : ""}.${
        failures.length
          ? html`<ul>
              ${failures.slice(0, 10).map((text) => html`<li>${text}</li>`)}
            </ul>`
          : ""
      }`;
    },
  });
}
const EFFECTS = {
  replay: "Each is due at once, with all of its attempts.",
  run: "Each becomes due at once. Limits and a pause of the queue still hold.",
  cancel: "None of them runs again.",
  delete: "They and their histories are deleted, and cannot be brought back.",
};

// All that a filter finds: counted first by dry runs, then done request by request, so that it can be stopped.

const COUNTED = 10;

async function dryRun(load, size, signal) {
  let found = 0,
    cursor = null,
    requests = 0;
  do {
    const page = await load(cursor);
    found += size(page);
    cursor = page.next_cursor;
  } while (cursor && ++requests < COUNTED && !signal.aborted);
  return { found, more: !!cursor };
}

const least = ({ found, more }) => `${more ? "at least " : ""}${count(found, "task")}`;

/** Replay the dead tasks of a queue by kind and error, at a rate. */
export function replayMany(queue, filter, about, after) {
  const load = (limit) => (cursor) =>
    post(queuePath(queue, "/dead/replay"), { ...filter, dry_run: true, limit, cursor });
  ask({
    title: `Replay dead tasks of ${queue}`,
    intro: about,
    confirm: "Replay",
    stops: true,
    fields: [
      {
        name: "rate",
        label: "Tasks a second",
        type: "number",
        value: "5",
        hint: "Empty: as fast as requests go. Start low where the cause may still be there.",
      },
      {
        name: "most",
        label: "At most",
        type: "number",
        value: "",
        placeholder: "all",
        hint: "Try a few first: the oldest are taken.",
      },
    ],
    plan: async (values, signal) => {
      const rate = values.rate === "" ? 0 : Number(values.rate),
        most = values.most === "" ? Infinity : Number(values.most);
      if (!(rate >= 0) || (values.rate !== "" && !rate) || !(most >= 1))
        return { nothing: true, text: "Give numbers above 0." };
      const counted = await dryRun(load(1000), (page) => page.replayed, signal);
      const total = Math.min(counted.found, most);
      if (!total) return { nothing: true, text: "No dead task is left that fits." };
      const takes = rate
        ? `It takes ${span((total / rate) * 1000)}, while this dialog is open.`
        : "They are due at once.";
      return {
        total,
        confirm: `Replay ${count(total, "task")}`,
        text: `${total < counted.found ? `${number(total)} of ${least(counted)}` : `${least(counted)}`} would be replayed, the oldest first, each with all of its attempts. ${takes} You can stop it: those not yet replayed stay dead.`,
      };
    },
    run: async (values, { plan, tell, signal }) => {
      const rate = Number(values.rate) || 0,
        chunk = rate ? Math.max(1, Math.min(1000, Math.round(rate * 2))) : 200;
      let done = 0,
        cursor = null;
      tell({ done, total: plan.total, text: `Replayed 0 of ${number(plan.total)}` });
      try {
        while (done < plan.total && !signal.aborted) {
          const began = Date.now();
          const limit = Math.min(chunk, plan.total - done);
          const page = await post(queuePath(queue, "/dead/replay"), {
            ...filter,
            limit,
            cursor,
            ...(rate && { rate: `${Math.max(1, Math.round(rate))}/s` }),
          });
          done += page.replayed;
          cursor = page.next_cursor;
          tell({ done, total: plan.total, text: `Replayed ${number(done)} of ${number(plan.total)}` });
          if (!cursor) break;
          if (rate && done < plan.total) await pause((page.replayed / rate) * 1000 - (Date.now() - began), signal);
        }
      } finally {
        after?.();
      }
      return `Replayed ${number(done)} of ${count(plan.total, "task")}${signal.aborted ? ", then stopped" : ""}.`;
    },
  });
}

/** Delete (`purge`) or cancel all tasks of a queue that a filter finds. */
export function actOnAll(verb, queue, filter, about, after) {
  const done = verb === "purge" ? "purged" : "cancelled";
  const word = verb === "purge" ? "Delete" : "Cancel";
  const act = (body) => post(queuePath(queue, `/${verb}`), { ...filter, ...body });
  ask({
    title: `${word} tasks of ${queue}`,
    intro: about,
    confirm: word,
    danger: true,
    stops: true,
    plan: async (_, signal) => {
      const counted = await dryRun(
        (cursor) => act({ dry_run: true, limit: 10_000, cursor }),
        (page) => page[done],
        signal,
      );
      if (!counted.found) return { nothing: true, text: "No task fits." };
      return {
        total: counted.found,
        confirm: `${word} ${count(counted.found, "task")}`,
        text: `${least(counted)} would be ${verb === "purge" ? "deleted with their histories, and cannot be brought back" : "cancelled, and never run again"}.`,
      };
    },
    run: async (_, { plan, tell, signal }) => {
      let total = 0,
        cursor = null;
      try {
        do {
          const page = await act({ limit: 1_000, cursor });
          total += page[done];
          cursor = page.next_cursor;
          tell({
            done: Math.min(total, plan.total),
            total: plan.total,
            text: `${word === "Delete" ? "Deleted" : "Cancelled"} ${number(total)} of ${number(plan.total)}`,
          });
        } while (cursor && total < plan.total && !signal.aborted);
      } finally {
        after?.();
      }
      return `${word === "Delete" ? "Deleted" : "Cancelled"} ${count(total, "task")}${signal.aborted ? ", then stopped" : ""}.`;
    },
  });
}
