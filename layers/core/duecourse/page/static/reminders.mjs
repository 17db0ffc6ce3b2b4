// Reminders by meeting: who is told when, by which channel; its messages as they would be read.
import { get, patch, post, remove, reminderPath, segment } from "./api.mjs";
import { ask } from "./dialog.mjs";
import { count, html, number, useState } from "./lib.mjs";
import { useLive } from "./live.mjs";
import { Chip, Empty, Facts, Failure, Json, Panel, State, Table, TaskLink, Waiting } from "./parts.mjs";
import { go, to } from "./route.mjs";
import { inWords } from "./schedule_actions.mjs";
import { useWords } from "./schedules.mjs";
import { Act } from "./session.mjs";
import { Time, distance, fromInput, present, spanOf, toInput } from "./times.mjs";

const QUEUE = "reminders";

/** Meetings of the reminders that wait, by the first pages of their tasks. */
async function meetings(get) {
  const found = new Map();
  let cursor = null,
    read = 0;
  do {
    const page = await get("/tasks", { queue: QUEUE, state: "scheduled", limit: 100, cursor });
    for (const task of page.tasks) {
      const id = task.payload?.reminder;
      if (!id) continue;
      if (!found.has(id))
        found.set(id, { id, subject: task.payload.subject ?? "", first: task.due_at, people: new Set(), messages: 0 });
      const one = found.get(id);
      one.messages++;
      if (task.payload.recipient?.name) one.people.add(task.payload.recipient.name);
    }
    cursor = page.next_cursor;
  } while (cursor && ++read < 5);
  return { meetings: [...found.values()], more: !!cursor };
}

export function Reminders() {
  const [id, setId] = useState("");
  const live = useLive("reminders", meetings, 15_000);
  return html`<div class="title"><h1>Reminders</h1></div>
    <form
      class="filters"
      role="search"
      aria-label="Open a reminder"
      onSubmit=${(event) => {
        event.preventDefault();
        if (id.trim()) go(to(["reminders", id.trim()]));
      }}
    >
      <label>Id <input value=${id} onInput=${(event) => setId(event.target.value)} spellcheck="false" /></label
      ><button type="submit">Open</button>
    </form>
    <${Waiting} live=${live}
      >${() =>
        live.data.meetings.length
          ? html`<${Panel}
              title="Meetings with messages to come"
              aside=${live.data.more && html`<span class="soft">of the next 500 messages</span>`}
            >
              <${Table}
                label="Meetings"
                columns=${[["Reminder"], ["Subject"], ["Next message"], ["Messages", "n"], ["People"]]}
                >${live.data.meetings.map(
                  (one) =>
                    html`<tr key=${one.id}>
                      <th scope="row"><a class="id" href=${to(["reminders", one.id])}>${one.id}</a></th>
                      <td>${one.subject}</td>
                      <td><${Time} at=${one.first} how="both" /></td>
                      <td class="n">${number(one.messages)}</td>
                      <td>
                        ${[...one.people].slice(0, 4).join(", ")}${one.people.size > 4 ? ` and ${one.people.size - 4} more` : ""}
                      </td>
                    </tr>`,
                )}<//
              ><//
            >`
          : html`<${Empty}
              >No message of a reminder waits. A reminder whose messages are all sent is found by its id.<//
            >`}<//
    >`;
}

const channel = (person) => person.email ?? person.phone ?? person.webhook ?? "";

const moveReminder = (reminder) =>
  ask({
    title: `Move ${reminder.id}`,
    confirm: "Move",
    fields: [
      {
        name: "starts_at",
        label: "New start",
        type: "datetime-local",
        value: toInput(Date.parse(reminder.starts_at)),
        hint: "In your time zone.",
      },
    ],
    plan: async (values) => {
      const at = fromInput(values.starts_at);
      if (!at || Date.parse(at) <= present()) return { nothing: true, text: "Give a time in the future." };
      if (values.starts_at === toInput(Date.parse(reminder.starts_at)))
        return { nothing: true, text: "It starts then already." };
      const open = reminder.tasks.filter((task) => task.state === "scheduled").length,
        sent = reminder.tasks.filter((task) => task.state === "done").length;
      return {
        text: html`The meeting starts at <${Time} at=${at} how="both" />.${" "}
          ${reminder.series ? "All starts of the series follow." : `${count(open, "message")} to come ${open === 1 ? "moves" : "move"} along.`}${" "}
          ${sent ? `${count(sent, "message")} ${sent === 1 ? "was" : "were"} sent for the old start; whoever got one is not told by this.` : ""}`,
      };
    },
    run: async (values) => {
      const answer = await patch(reminderPath(reminder.id), {
        starts_at: fromInput(values.starts_at),
        ...(reminder.series && { if_version: reminder.series.version }),
      });
      return `${count(answer.tasks.length, "message")} moved. ${answer.leased.length ? `${count(answer.leased.length, "message")} were being sent. ` : ""}${answer.sent.length ? `${count(answer.sent.length, "message")} were sent already.` : ""}`;
    },
  });

const cancelReminder = (reminder) =>
  ask({
    title: `Cancel ${reminder.id}`,
    confirm: "Cancel the reminder",
    danger: true,
    fields: reminder.tasks.some((task) => task.state === "leased")
      ? [{ name: "force", label: "Those being sent too", type: "checkbox", hint: "Their worker loses the lease." }]
      : [],
    plan: async (_, signal) => {
      const found = await get(reminderPath(reminder.id), {}, signal);
      const open = found.tasks.filter((task) => task.state === "scheduled").length;
      if (!open && !found.series) return { nothing: true, text: "No message is to come." };
      return {
        text: found.series
          ? "It comes again no more. Occurrences that were moved by hand stay."
          : `${count(open, "message")} to come ${open === 1 ? "is" : "are"} cancelled. What was sent stays sent.`,
      };
    },
    run: async (values) => {
      await remove(reminderPath(reminder.id), values.force ? { force: true } : {});
      return "It is cancelled.";
    },
  });

const occurrencePath = (id, at) => reminderPath(id, `/occurrences/${segment(at)}`);

const moveOccurrence = (id, one) =>
  ask({
    title: `Move one start of ${id}`,
    confirm: "Move",
    fields: [
      {
        name: "starts_at",
        label: "New start",
        type: "datetime-local",
        value: toInput(Date.parse(one.starts_at ?? one.at)),
        hint: "In your time zone.",
      },
    ],
    plan: async (values) => {
      const at = fromInput(values.starts_at);
      if (!at || Date.parse(at) <= present()) return { nothing: true, text: "Give a time in the future." };
      return { text: html`This start moves to <${Time} at=${at} how="both" />, and no other.` };
    },
    run: async (values) => {
      await patch(occurrencePath(id, one.at), { starts_at: fromInput(values.starts_at) });
      return "It is moved.";
    },
  });

const cancelOccurrence = (id, one) =>
  ask({
    title: `Cancel one start of ${id}`,
    confirm: "Cancel this start",
    danger: true,
    plan: async () => ({
      text: html`Nobody is reminded of the start at <${Time} at=${one.starts_at ?? one.at} how="both" />. The others
        stay.`,
    }),
    run: async () => {
      await remove(occurrencePath(id, one.at));
      return "It is cancelled.";
    },
  });

export function Reminder({ id }) {
  useWords();
  const live = useLive(`reminder ${id}`, (from) => from(reminderPath(id)), 6_000);
  return html`<${Waiting} live=${live}
    >${() => {
      const one = live.data,
        series = one.series;
      const open = one.tasks.some((task) => ["scheduled", "leased"].includes(task.state)) || series;
      return html`<div class="title">
          <h1 class="id">${id}</h1>
          <div class="buttons">
            ${open && html`<${Act} onClick=${() => moveReminder(one)}>Move…<//><${Act} kind="danger" onClick=${() => cancelReminder(one)}>Cancel…<//>`}
          </div>
        </div>
        <p class="why">
          <strong>${one.subject}</strong> starts${" "}
          <${Time}
            at=${one.starts_at}
            how="both"
          />${distance(Date.parse(one.starts_at)).startsWith("in") ? "" : ": it has begun"}.
        </p>
        ${
          one.tasks.length > 0 &&
          html`<${Panel} title="Who is told when"
            ><${Table}
              label="Messages"
              columns=${[["Recipient"], ["Channel"], ["Before", "n"], ["Due"], ["State"], ["Message"]]}
              >${[...one.tasks]
                .sort((a, b) => a.due_at.localeCompare(b.due_at))
                .map(
                  (task) =>
                    html`<tr key=${task.id}>
                      <th scope="row">${task.recipient.name || "–"}</th>
                      <td>${channel(task.recipient)} <span class="soft">${task.recipient.time_zone}</span></td>
                      <td class="n">${spanOf(task.remind_before)}</td>
                      <td><${Time} at=${task.due_at} how="both" /></td>
                      <td><${State} state=${task.state} /></td>
                      <td><${TaskLink} id=${task.id} queue=${QUEUE} /></td>
                    </tr>`,
                )}<//
            ><//
          >`
        }
        ${
          series &&
          html`<div class="columns">
            <${Panel} title="Comes again"
              ><p><strong>${inWords(series.repeat)}</strong> <span class="soft">in ${series.time_zone}</span></p>
              <${Facts}
                facts=${[
                  ["Before each start", series.remind_before.map(spanOf).join(", ")],
                  ["Recipients", series.recipients.map((person) => `${person.name} ${channel(person)}`).join(", ")],
                  ["Until", series.until && html`<${Time} at=${series.until} />`],
                  ["Limit", series.limit],
                  ["Version", series.version],
                ]}
              />
              <ol class="upcoming">
                ${series.next.map((next) => html`<li key=${next.at}><${Time} at=${next.at} how="both" />${next.clock_change && html` <${Chip} kind="warn">clocks change<//>`} <${Act} kind="quiet" onClick=${() => moveOccurrence(id, next)}>Move…<//><${Act} kind="quiet" onClick=${() => cancelOccurrence(id, next)}>Cancel…<//></li>`)}
              </ol><//
            >
            <${Panel} title="With messages, or changed by hand"
              >${
                series.occurrences.length
                  ? html`<ol class="upcoming">
                      ${series.occurrences.map(
                        (other) =>
                          html`<li key=${other.id}>
                            <a href=${to(["reminders", other.id])}><${Time} at=${other.starts_at} how="both" /></a>${" "}
                            <${Chip} kind=${other.state === "standing" ? "" : "warn"}>${other.state}<//
                            >${other.state !== "standing" && html` <span class="soft">by the rule <${Time} at=${other.at} /></span>`}
                          </li>`,
                      )}
                    </ol>`
                  : html`<${Empty}>None.<//>`
              }<//
            >
          </div>`
        }
        <${Messages} id=${id} />
        ${one.data && Object.keys(one.data).length > 0 && html`<${Json} title="Data of the templates" value=${one.data} />`}`;
    }}<//
  >`;
}

/** The messages, written out; none is sent. */
function Messages({ id }) {
  const [found, setFound] = useState(null);
  const [error, setError] = useState(null);
  const show = () => post("/reminders/preview", { id }).then(setFound, setError);
  return html`<${Panel}
    title="Messages as they are read"
    aside=${!found && html`<button type="button" onClick=${show}>Write them out</button>`}
  >
    ${error && html`<${Failure} error=${error} />`}
    ${
      found
        ? html`<ul class="messages">
              ${found.messages.map(
                (one) =>
                  html`<li key=${one.id}>
                    <header>
                      <strong>${one.subject}</strong>${" "}
                      <span class="soft"
                        >to ${one.recipient.name} ${channel(one.recipient)}, ${spanOf(one.remind_before)} before</span
                      >
                    </header>
                    <pre>${one.text}</pre>
                  </li>`,
              )}
            </ul>
            ${found.left_out > 0 && html`<p class="soft">${count(found.left_out, "message")} more.</p>`}${!found.messages.length && html`<${Empty}>No message is to come.<//>`}`
        : html`<p class="soft">None is sent by this.</p>`
    }<//
  >`;
}
