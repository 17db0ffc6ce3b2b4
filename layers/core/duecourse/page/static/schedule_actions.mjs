// What may be done with a schedule, and a rule in words.
import { get, patch, post, remove, schedulePath } from "./api.mjs";
import { ask } from "./dialog.mjs";
import { count, html, number, script } from "./lib.mjs";
import { to } from "./route.mjs";
import { Sentence, Time, distance, fromInput, present, spanOf, toInput } from "./times.mjs";

/** A reminder that comes again is a schedule of this queue; it is changed as a reminder. */
export const REMINDERS = "reminders";
export const addressOf = (one) =>
  one.queue === REMINDERS ? to(["reminders", one.id]) : to(["schedules", one.id], { queue: one.queue });

const read = async (schedule, signal) =>
  (await get(schedulePath(schedule.id), { queue: schedule.queue }, signal)).schedule;
const query = (schedule) => ({ queue: schedule.queue });

/** A rule in words: "Each 15 min", "At 09:00, Monday through Friday"; the rule itself where there are none. */
export function inWords({ every, cron, rrule }) {
  if (every) return `Each ${spanOf(every)}`;
  if (cron) {
    try {
      return self.cronstrue ? self.cronstrue.toString(cron, { use24HourTimeFormat: true, verbose: false }) : cron;
    } catch {
      return cron;
    }
  }
  return rruleWords(rrule ?? "");
}
/** Load what puts cron into words. */
export const wordsOfCron = () => script("cronstrue.min.js");
export const ruleText = ({ every, cron, rrule }) => every ?? cron ?? rrule ?? "";

const DAYS = {
  MO: "Monday",
  TU: "Tuesday",
  WE: "Wednesday",
  TH: "Thursday",
  FR: "Friday",
  SA: "Saturday",
  SU: "Sunday",
};
const ORDER = { 1: "first", 2: "second", 3: "third", 4: "fourth", "-1": "last", "-2": "last but one" };
const NOUN = {
  SECONDLY: "second",
  MINUTELY: "minute",
  HOURLY: "hour",
  DAILY: "day",
  WEEKLY: "week",
  MONTHLY: "month",
  YEARLY: "year",
};
const KNOWN = new Set(["FREQ", "INTERVAL", "BYDAY", "BYMONTHDAY", "BYHOUR", "BYMINUTE", "BYSECOND", "COUNT"]);

/** The usual rules of RFC 5545; another one is shown as it is. */
function rruleWords(rule) {
  const parts = Object.fromEntries(
    rule
      .replace(/^RRULE:/, "")
      .split(";")
      .map((part) => part.split("=")),
  );
  if (!NOUN[parts.FREQ] || Object.keys(parts).some((name) => !KNOWN.has(name))) return rule;
  const n = Number(parts.INTERVAL ?? 1);
  const words = [n === 1 ? `Each ${NOUN[parts.FREQ]}` : `Every ${n} ${NOUN[parts.FREQ]}s`];
  const days = parts.BYDAY?.split(",")
    .map((day) => /^(-?\d+)?(\w\w)$/.exec(day))
    .map(
      (found) =>
        found &&
        DAYS[found[2]] &&
        (found[1] ? ORDER[found[1]] && `the ${ORDER[found[1]]} ${DAYS[found[2]]}` : DAYS[found[2]]),
    );
  if (days?.some((day) => !day)) return rule;
  if (days) words.push(`on ${days.join(", ")}`);
  if (parts.BYMONTHDAY)
    words.push(
      `on ${parts.BYMONTHDAY.split(",")
        .map((day) => (Number(day) > 0 ? `day ${day}` : ORDER[day] ? `the ${ORDER[day]} day` : `day ${day}`))
        .join(", ")}`,
    );
  if (parts.BYHOUR)
    words.push(
      `at ${parts.BYHOUR.split(",")
        .map((hour) => `${hour.padStart(2, "0")}:${(parts.BYMINUTE ?? "0").padStart(2, "0")}`)
        .join(", ")}`,
    );
  if (parts.COUNT) words.push(`${parts.COUNT} times`);
  return words.join(" ");
}

export const pauseSchedule = (schedule) =>
  ask({
    title: `Pause ${schedule.id}`,
    confirm: "Pause",
    danger: true,
    plan: async (_, signal) => {
      const found = await read(schedule, signal);
      if (found.paused) return { nothing: true, text: "It is paused already." };
      return {
        text: html`Nothing fires until you resume
        it${found.next[0] ? html`, the next time at <${Time} at=${found.next[0].at} how="both" /> included` : ""}.${" "}
        ${MISSED[found.missed]} An occurrence that runs goes on.`,
      };
    },
    run: async () => {
      await patch(schedulePath(schedule.id), { paused: true, if_version: schedule.version }, query(schedule));
      return "It is paused.";
    },
  });
const MISSED = {
  latest: "When it is resumed, one occurrence makes up for the times that passed.",
  all: "When it is resumed, the times that passed are made up for, as far back as catch_up says.",
  none: "The times that pass meanwhile are not made up for.",
};

export const resumeSchedule = (schedule) =>
  ask({
    title: `Resume ${schedule.id}`,
    confirm: "Resume",
    plan: async (_, signal) => {
      const found = await read(schedule, signal);
      if (!found.paused) return { nothing: true, text: "It is not paused." };
      const { times } = await post("/schedules/preview", { ...ruleOf(found), count: 1 });
      return {
        text: html`It fires
        again${times[0] ? html`, next by its rule at <${Time} at=${times[0].at} how="both" />` : ""}.${" "}
        ${found.missed === "latest" ? "One occurrence makes up at once for times that passed while it was paused." : found.missed === "all" ? `Times of the last ${spanOf(found.catch_up)} that passed while it was paused are made up for at once.` : "Times that passed are not made up for."}`,
      };
    },
    run: async () => {
      const { schedule: found } = await patch(
        schedulePath(schedule.id),
        { paused: false, if_version: schedule.version },
        query(schedule),
      );
      return html`It is resumed. <${Sentence} text=${found.why} />`;
    },
  });

export const runSchedule = (schedule) =>
  ask({
    title: `Run ${schedule.id} now`,
    confirm: "Run now",
    plan: async (_, signal) => {
      const found = await read(schedule, signal);
      return {
        text: html`One occurrence is added now, beside the series: no time of the rule is left out for it.${" "}
          <${Sentence} text=${found.why} />`,
      };
    },
    run: async () => {
      const { id } = await post(schedulePath(schedule.id, "/run"), undefined, query(schedule));
      return html`Added: <code>${id}</code>.`;
    },
  });

export const deleteSchedule = (schedule, after) =>
  ask({
    title: `Delete ${schedule.id}`,
    confirm: "Delete",
    danger: true,
    plan: async (_, signal) => {
      const found = await read(schedule, signal);
      return {
        text: html`No further occurrence
        comes${found.next[0] ? html`, not that at <${Time} at=${found.next[0].at} how="both" /> either` : ""}. One that
        is running finishes. The rule cannot be brought back.`,
      };
    },
    run: async () => {
      await remove(schedulePath(schedule.id), query(schedule));
      after?.();
      return "It is deleted.";
    },
  });

export const backfill = (schedule) =>
  ask({
    title: `Backfill ${schedule.id}`,
    confirm: "Backfill",
    fields: [
      {
        name: "from",
        label: "From",
        type: "datetime-local",
        value: toInput(present() - 86_400_000),
        hint: "In your time zone.",
      },
      {
        name: "to",
        label: "To, not included",
        type: "datetime-local",
        value: toInput(present()),
        hint: "No time in the span may be yet to come.",
      },
      {
        name: "overlap",
        label: "Beside a running one",
        type: "select",
        value: "",
        options: [
          ["", `as the schedule says (${schedule.overlap})`],
          ["allow", "run both"],
          ["skip", "skip it"],
          ["queue", "one after another"],
          ["replace", "replace the running one"],
        ],
        hint: "",
      },
    ],
    plan: async (values) => {
      const from = fromInput(values.from),
        end = fromInput(values.to);
      if (!from || !end || from >= end) return { nothing: true, text: "Give a span." };
      const { times } = await post("/schedules/preview", { ...ruleOf(schedule), from, count: 1000 });
      const inside = times.filter((one) => one.at < end);
      if (!inside.length) return { nothing: true, text: "The rule has no time in this span." };
      return {
        text: html`${inside.length === 1000 ? "At least " : ""}${count(inside.length, "occurrence")} would be added,
          from <${Time} at=${inside[0].at} /> to <${Time} at=${inside.at(-1).at} />, some each second. One that exists
          already is not added twice.`,
      };
    },
    run: async (values) => {
      const { occurrences } = await post(
        schedulePath(schedule.id, "/backfill"),
        { from: fromInput(values.from), to: fromInput(values.to), ...(values.overlap && { overlap: values.overlap }) },
        query(schedule),
      );
      return `${count(occurrences, "occurrence")} ${occurrences === 1 ? "is" : "are"} being added.`;
    },
  });

export const ruleOf = (schedule) => ({
  repeat: schedule.repeat,
  time_zone: schedule.time_zone,
  starts_at: schedule.starts_at,
  gap: schedule.gap,
  fold: schedule.fold,
});
const KINDS = [
  ["cron", "cron"],
  ["every", "interval"],
  ["rrule", "recurrence rule (RFC 5545)"],
];

export function changeSchedule(schedule) {
  const kind = KINDS.map(([name]) => name).find((name) => schedule.repeat[name] !== undefined) ?? "cron";
  const rule = (values) =>
    values.rule.trim() === ruleText(schedule.repeat) && values.kind === kind
      ? schedule.repeat
      : { [values.kind]: values.rule.trim() };
  const changes = (values) => {
    const found = {};
    if (JSON.stringify(rule(values)) !== JSON.stringify(schedule.repeat)) found.repeat = rule(values);
    for (const name of ["time_zone", "overlap", "missed", "jitter"])
      if (values[name].trim() !== schedule[name]) found[name] = values[name].trim();
    if (values.payload.trim() !== JSON.stringify(schedule.payload, null, 2)) found.payload = JSON.parse(values.payload);
    return found;
  };
  ask({
    title: `Change ${schedule.id}`,
    confirm: "Change",
    fields: [
      { name: "kind", label: "Rule by", type: "select", value: kind, options: KINDS },
      {
        name: "rule",
        field: "repeat",
        label: "Rule",
        value: ruleText(schedule.repeat),
        hint: "Its times are shown below while you type.",
      },
      {
        name: "time_zone",
        label: "Time zone",
        value: schedule.time_zone,
        hint: "An IANA name, such as Europe/Vienna.",
      },
      {
        name: "overlap",
        label: "Beside a running one",
        type: "select",
        value: schedule.overlap,
        options: ["allow", "skip", "queue", "replace"].map((one) => [one, one]),
      },
      {
        name: "missed",
        label: "Missed times",
        type: "select",
        value: schedule.missed,
        options: ["latest", "all", "none"].map((one) => [one, one]),
      },
      { name: "jitter", label: "Jitter", value: schedule.jitter, hint: "An upper bound, such as PT5M." },
      {
        name: "payload",
        label: "Payload",
        type: "textarea",
        value: JSON.stringify(schedule.payload, null, 2),
        hint: "JSON; masked values cannot be written back as they are.",
      },
    ],
    plan: async (values) => {
      let found;
      try {
        found = changes(values);
      } catch {
        return { nothing: true, text: "The payload is not JSON." };
      }
      const repeat = rule(values);
      const { times } = await post("/schedules/preview", {
        ...ruleOf(schedule),
        repeat,
        time_zone: values.time_zone.trim(),
        count: 5,
      });
      return {
        nothing: !Object.keys(found).length,
        text: html`<strong>${inWords(repeat)}</strong>, ${values.time_zone}.${" "}
          ${Object.keys(found).length ? `Changes ${Object.keys(found).join(", ")}; a running occurrence finishes as it is.` : "No field differs yet."}`,
        more: html`<${Upcoming} times=${times} />`,
      };
    },
    run: async (values) => {
      const { schedule: found } = await patch(
        schedulePath(schedule.id),
        { ...changes(values), if_version: schedule.version },
        query(schedule),
      );
      return html`Version ${number(found.version)}. <${Sentence} text=${found.why} />`;
    },
  });
}

/** Times to come: local, in the reader's zone, and where the clocks change. */
export const Upcoming = ({ times }) =>
  html`<ol class="upcoming">
    ${times.map((one) => html`<li key=${one.at}><${Time} at=${one.at} /> <span class="soft">${distance(Date.parse(one.at))}</span> <span class="soft">· ${one.local.slice(0, 16).replace("T", " ")} there</span>${one.clock_change && html` <span class="chip warn" title="The zone's clocks changed since the time before it.">clocks change</span>`}${one.due_at && one.due_at !== one.at && html` <span class="soft">· delayed to <${Time} at=${one.due_at} /></span>`}</li>`)}
  </ol>`;
