// Schedules: what fires next on a timeline and in a calendar, and one schedule with all that may be done to it.
import { allQueues, pages, post, schedulePath, taskPath } from "./api.mjs";
import { count, html, inLanes, number, useEffect, useMemo, useState } from "./lib.mjs";
import { useLive } from "./live.mjs";
import { Health, LATE_MS } from "./overview.mjs";
import { Chip, Choice, Empty, Facts, Json, Panel, QueueLink, State, Table, TaskLink, Waiting } from "./parts.mjs";
import { Calendar, Lanes, changeText, startOfWeek } from "./plots.mjs";
import { filter, go, to } from "./route.mjs";
import {
  REMINDERS,
  Upcoming,
  addressOf,
  backfill,
  changeSchedule,
  deleteSchedule,
  inWords,
  pauseSchedule,
  resumeSchedule,
  ruleOf,
  ruleText,
  runSchedule,
  wordsOfCron,
} from "./schedule_actions.mjs";
import { Act } from "./session.mjs";
import { Sentence, Time, clockChanges, present, span, spanOf, useNow } from "./times.mjs";

const HOUR = 3_600_000,
  DAY = 24 * HOUR;
const SPANS = { "6h": 6 * HOUR, "24h": DAY, "7d": 7 * DAY, "60d": 60 * DAY, "1y": 365 * DAY };
const DRAWN = 24;
const MOST = 1000;

/** Schedules of every queue: those that fire first are shown first. */
async function everySchedule(from, show) {
  const queues = (await allQueues(from))
    .filter((one) => one.schedules?.count)
    .sort((one, other) => (one.schedules.next_at ?? "9999").localeCompare(other.schedules.next_at ?? "9999"));
  const found = [];
  let shown = 0;
  await inLanes(queues, async (one) => {
    const list = await pages(
      (after) => from("/schedules", { queue: one.queue, limit: 100, after }),
      (page) => page.next_after,
      20,
    );
    found.push(...list.pages.flatMap((page) => page.schedules));
    if (found.length > shown * 2) {
      shown = found.length;
      show([...found]);
    }
  });
  return found;
}

const nextAt = (one) => one.next[0]?.due_at ?? one.next[0]?.at ?? "9999";
const keyOf = (one) => `${one.queue} ${one.id}`;

/** Put cron into words as soon as that can be done. */
export function useWords() {
  const [, ready] = useState(false);
  useEffect(() => {
    wordsOfCron().then(
      () => ready(true),
      () => {},
    );
  }, []);
}

/** Times of some schedules until an instant, asked for once for each version of a schedule. */
function useTimes(schedules, until) {
  const [found, setFound] = useState({});
  const wanted = schedules.map((one) => `${keyOf(one)} ${one.version}`).join("\n");
  useEffect(() => {
    let over = false;
    setFound({});
    (async () => {
      for (const one of schedules) {
        if (over) return;
        try {
          const { times } = await post("/schedules/preview", { ...ruleOf(one), count: MOST });
          // `until` and `limit` end a schedule before its rule does.
          const inside = times
            .filter((time) => Date.parse(time.at) <= until && (!one.until || time.at <= one.until))
            .slice(0, one.limit ? Math.max(0, one.limit - one.fired) : undefined);
          const known = inside.length === MOST ? Date.parse(inside.at(-1).at) : undefined;
          if (!over) setFound((before) => ({ ...before, [keyOf(one)]: { times: inside, known } }));
        } catch {
          if (!over) setFound((before) => ({ ...before, [keyOf(one)]: { times: [] } }));
        }
      }
    })();
    return () => {
      over = true;
    };
  }, [wanted, until]);
  return found;
}

export function Schedules({ query }) {
  useWords();
  const live = useLive("schedules", everySchedule, 15_000);
  const queues = useLive("queues", allQueues, 15_000);
  const health = new Map((queues.data ?? []).map((one) => [one.queue, one]));
  const how = query.show ?? "timeline",
    wide = Object.hasOwn(SPANS, query.span) ? query.span : "24h";
  const text = (query.find ?? "").toLowerCase();
  return html`<div class="title"><h1>Schedules</h1></div>
    <${Waiting} live=${live}
      >${() => {
        if (!live.data.length) return html`<${Empty}>No schedule. <code>duecourse schedules add</code> makes one.<//>`;
        const fit = live.data
          .filter((one) => !text || `${one.id} ${one.kind} ${one.queue}`.toLowerCase().includes(text))
          .sort((one, other) => nextAt(one).localeCompare(nextAt(other)));
        return html`<form
            class="filters"
            role="search"
            aria-label="Filter schedules"
            onSubmit=${(event) => event.preventDefault()}
          >
            <label
              >Find${" "}
              <input
                value=${query.find ?? ""}
                placeholder="id, kind or queue"
                onInput=${(event) => filter({ find: event.target.value })}
            /></label>
            <${Choice}
              label="Picture"
              value=${how}
              options=${[
                ["timeline", "timeline"],
                ["calendar", "calendar"],
              ]}
              onChange=${(show) => filter({ show })}
            />
            ${
              how === "timeline" &&
              html`<${Choice}
                label="Span"
                value=${wide}
                options=${[
                  ["6h", "6 hours"],
                  ["24h", "24 hours"],
                  ["7d", "7 days"],
                  ["60d", "60 days"],
                  ["1y", "a year"],
                ]}
                onChange=${(chosen) => filter({ span: chosen })}
              />`
            }
          </form>
          <${Picture} schedules=${fit.slice(0, DRAWN)} left=${fit.length - DRAWN} how=${how} wide=${wide} />
          <${Panel} title="All" aside=${html`<span class="soft">${count(fit.length, "schedule")}</span>`}>
            <${Table}
              label="Schedules"
              columns=${[["Schedule"], ["Queue"], ["Rule"], ["Fires next"], ["Fired", "n"], ["Missed", "n"], ["Skipped", "n"], ["", "act"]]}
            >
              ${fit.slice(0, 300).map(
                (one) =>
                  html`<tr key=${keyOf(one)}>
                    <th scope="row"><a class="id" href=${addressOf(one)}>${one.id}</a></th>
                    <td>
                      <${QueueLink} queue=${one.queue} />${" "}
                      ${health.has(one.queue) && html`<${Health} queue=${health.get(one.queue)} quiet=${true} />`}
                    </td>
                    <td class="rule" title=${ruleText(one.repeat)}>
                      ${inWords(one.repeat)} <span class="soft">${one.time_zone}</span>
                    </td>
                    <td>
                      ${one.paused ? html`<${Chip} kind="warn">paused<//>` : one.next[0] ? html`<${Time} at=${one.next[0].due_at ?? one.next[0].at} how="both" />` : html`<span class="soft" title=${one.why}>over</span>`}${one.next[0]?.clock_change && html` <${Chip} kind="warn">clocks change<//>`}
                    </td>
                    <td class="n">${number(one.fired)}</td>
                    <td class="n">
                      ${one.times_missed ? html`<span class="bad">${number(one.times_missed)}</span>` : html`<span class="none">0</span>`}
                    </td>
                    <td class="n">${one.skipped ? number(one.skipped) : html`<span class="none">0</span>`}</td>
                    <td class="act">
                      ${one.queue === REMINDERS ? "" : one.paused ? html`<${Act} kind="quiet" onClick=${() => resumeSchedule(one)}>Resume…<//>` : html`<${Act} kind="quiet" onClick=${() => pauseSchedule(one)}>Pause…<//>`}${one.queue !== REMINDERS && html`<${Act} kind="quiet" onClick=${() => runSchedule(one)}>Run now…<//>`}
                    </td>
                  </tr>`,
              )}<//
            >
            ${fit.length > 300 && html`<p class="soft">The first 300: find others above.</p>`}<//
          >`;
      }}<//
    >`;
}

function Picture({ schedules, left, how, wide }) {
  const now = useNow();
  const [start] = useState(present);
  const from = how === "calendar" ? startOfWeek(start) : start;
  const until = how === "calendar" ? from + 35 * DAY : start + SPANS[wide];
  const found = useTimes(schedules, until);
  const zones = schedules.map((one) => one.time_zone).join(",");
  const changes = useMemo(
    () => [...new Set(zones.split(","))].flatMap((zone) => clockChanges(zone, from, until)),
    [zones, from, until],
  );
  const lanes = schedules.map((one) => ({
    id: keyOf(one),
    label: html`<a class="id" href=${addressOf(one)} title="${one.id}, ${inWords(one.repeat)}">${one.id}</a>`,
    paused: one.paused,
    ...found[keyOf(one)],
  }));
  return html`<${Panel}
    title=${how === "calendar" ? "Five weeks" : "What fires next"}
    aside=${changes.length > 0 && html`<span class="warn">${changes.slice(0, 3).map((one) => html`<span class="block">${changeText(one)}</span>`)}</span>`}
  >
    ${how === "calendar" ? html`<${Calendar} lanes=${lanes} from=${from} to=${until} now=${now} changes=${changes} />` : html`<${Lanes} label="Timeline of what fires next" lanes=${lanes} from=${start} to=${until} now=${now} changes=${changes} />`}
    ${left > 0 && html`<p class="soft">The ${DRAWN} that fire first; ${number(left)} more are listed below.</p>`}<//
  >`;
}

export function Schedule({ id, query }) {
  useWords();
  const queue = query.queue ?? "default";
  const live = useLive(
    `schedule ${queue} ${id}`,
    async (from) => (await from(schedulePath(id), { queue })).schedule,
    4_000,
  );
  const runs = useLive(
    live.data?.recent.length ? `runs of ${queue} ${id} ${live.data.recent[0].id}` : null,
    (from) => lengths(live.data.recent, queue, from),
    60_000,
  );
  const now = useNow();
  return html`<${Waiting} live=${live}
    >${() => {
      const one = live.data;
      const waits = one.recent.filter((past) => past.state === "scheduled" && now - Date.parse(past.at) >= LATE_MS);
      const horizon = one.next.length ? Date.parse(one.next.at(-1).at) : now + DAY;
      const changes = clockChanges(one.time_zone, now, Math.max(horizon, now + 60 * DAY)).slice(0, 2);
      return html`<div class="title">
          <h1 class="id">${id}</h1>
          ${one.paused && html`<${Chip} kind="warn">paused<//>`}
          <div class="buttons">
            ${one.paused ? html`<${Act} kind="main" onClick=${() => resumeSchedule(one)}>Resume…<//>` : html`<${Act} onClick=${() => pauseSchedule(one)}>Pause…<//>`}
            <${Act} onClick=${() => runSchedule(one)}>Run now…<//><${Act} onClick=${() => backfill(one)}>Backfill…<//
            ><${Act} onClick=${() => changeSchedule(one)}>Change…<//
            ><${Act} kind="danger" onClick=${() => deleteSchedule(one, () => go(to(["schedules"])))}>Delete…<//>
          </div>
        </div>
        ${live.error && html`<p class="note warn" role="alert">${live.error.message}</p>`}
        <p class="why ${one.paused || waits.length ? "warn" : ""}">
          <strong>Why:</strong> <${Sentence} text=${one.why} />
        </p>
        <div class="columns">
          <${Panel} title="Fires next"
            ><p>
              <strong>${inWords(one.repeat)}</strong>${" "}
              <span class="soft">in ${one.time_zone}, <code>${ruleText(one.repeat)}</code></span>
            </p>
            ${one.next.length ? html`<${Upcoming} times=${one.next} />` : html`<${Empty}>No further time.<//>`}
            ${changes.map((change) => html`<p class="warn">${changeText(change)}</p>`)}<//
          >
          <${Panel} title="Last occurrences"
            >${
              one.recent.length
                ? html`<ol class="upcoming">
                    ${one.recent.map((past) => html`<li key=${past.id}><${Time} at=${past.at} /> ${["skipped", "missed"].includes(past.state) ? html`<${Chip} kind="warn" title=${past.state === "skipped" ? "Another occurrence was still running, or a quota was used up." : "Nothing ran for it."}>${past.state}<//>` : html`<${TaskLink} id=${past.id} queue=${queue}><${State} state=${past.state} /><//>`} ${waits.includes(past) && html` <${Chip} kind="warn">late by ${span(now - Date.parse(past.at))}<//>`} <span class="soft">${runs.data?.[past.id] ?? ""}${past.stands_for > 1 ? ` makes up for ${number(past.stands_for)} times` : ""}</span></li>`)}
                  </ol>`
                : html`<${Empty}>None yet.<//>`
            }<//
          >
        </div>
        <div class="columns">
          <${Panel} title="Facts"
            ><${Facts}
              facts=${[
                ["Queue", html`<${QueueLink} queue=${queue} />`],
                ["Kind", one.kind],
                ["Fired", number(one.fired)],
                ["Missed", number(one.times_missed)],
                ["Skipped", number(one.skipped)],
                ["Beside a running one", one.overlap],
                ["Missed times", one.missed === "all" ? `all of the last ${spanOf(one.catch_up)}` : one.missed],
                ["Jitter", one.jitter === "PT0S" ? "none" : `up to ${spanOf(one.jitter)}`],
                ["Clocks leave out a time", one.gap_used],
                ["Clocks repeat a time", one.fold_used],
                ["Attempts", one.retry.max_attempts],
                ["Deadline", one.deadline && spanOf(one.deadline)],
                ["First", html`<${Time} at=${one.starts_at} how="both" />`],
                ["Until", one.until && html`<${Time} at=${one.until} how="both" />`],
                ["Limit", one.limit],
                [
                  "Made by",
                  one.file !== undefined
                    ? `file ${one.file} of schedules: a change here lasts until the file is applied again`
                    : "",
                ],
                ["Version", number(one.version)],
                ["Time zones", one.time_zones],
              ]} /><//
          ><${Json} title="Payload" value=${one.payload} />
        </div>`;
    }}<//
  >`;
}

/** How long the last runs took, by the tasks that are kept. */
async function lengths(recent, queue, from) {
  const found = {};
  for (const past of recent.filter((one) => ["done", "dead"].includes(one.state))) {
    try {
      const { task } = await from(taskPath(past.id), { queue });
      const last = task.history.at(-1);
      if (last?.claimed_at)
        found[past.id] =
          `took ${span(Date.parse(last.ended_at) - Date.parse(last.claimed_at))}${task.run > 1 ? ` in run ${task.run}` : ""}`;
    } catch {
      found[past.id] = "";
    }
  }
  return found;
}
