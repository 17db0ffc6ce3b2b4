// Time as pictures: an axis, bars of counts, one task's life, and lanes of schedules. Plain SVG, in percent of its width.
import { count, html, number } from "./lib.mjs";
import { clock, dayName, dayOf, distance, span, when, zoneOffset, ZONE } from "./times.mjs";

const MIN = 60_000,
  HOUR = 3_600_000,
  DAY = 86_400_000;
const STEPS = [1, 5, 15, 30]
  .map((n) => n * 1_000)
  .concat(
    [1, 5, 15, 30].map((n) => n * MIN),
    [1, 3, 6, 12].map((n) => n * HOUR),
    [1, 2, 7, 14, 30, 90, 365].map((n) => n * DAY),
  );

/** Instants at which an axis has a mark, at whole hours or days of the reader's zone. */
const NARROW = matchMedia("(max-width: 760px)");
function ticks(from, to, most = NARROW.matches ? 4 : 7) {
  const step = STEPS.find((one) => (to - from) / one <= most) ?? 365 * DAY;
  const shift = zoneOffset(ZONE, from) * MIN;
  const found = [];
  for (let at = Math.ceil((from + shift) / step) * step - shift; at <= to; at += step) found.push(at);
  return { step, at: found };
}

const scale = (from, to) => (at) => `${Math.max(0, Math.min(100, ((at - from) / Math.max(1, to - from)) * 100))}%`;

/** Marks of time under a picture; "now" stands out. */
function Axis({ from, to, now, most }) {
  const x = scale(from, to);
  // A label at an end of the axis stays within the picture.
  const side = (at) => {
    const part = (at - from) / (to - from);
    return part < 0.05 ? "first" : part > 0.92 ? "last" : "";
  };
  const { step, at: all } = ticks(from, to, most);
  // A mark beside "now" would lie under it.
  const marks = all.filter(
    (at) => !(now >= from && now <= to) || Math.abs(at - now) / (to - from) > (NARROW.matches ? 0.14 : 0.05),
  );
  const label = (at) =>
    step >= DAY || (step >= HOUR && clock(at) === "00:00") ? dayName(at) : step < MIN ? when(at, at) : clock(at);
  return html`<div class="axis" aria-hidden="true">
    ${marks.map((at) => html`<span key=${at} class=${side(at)} style=${{ left: x(at) }}>${label(at)}</span>`)}${now >= from && now <= to && html`<span class="now ${side(now)}" style=${{ left: x(now) }}>now</span>`}
  </div>`;
}

/** Counts in spans of time: [{from, to, n, kind, more}]; `more` where the number is a lower bound. */
export function Bars({ bars, label, now, height = 96 }) {
  if (!bars.length) return null;
  const from = bars[0].from,
    to = bars.at(-1).to;
  const most = Math.max(1, ...bars.map((bar) => bar.n));
  const width = 100 / bars.length;
  const total = bars.reduce((sum, bar) => sum + bar.n, 0);
  return html`<figure class="plot">
    <div class="bars">
      <span class="top" aria-hidden="true">${number(most)}</span>
      <svg
        role="img"
        aria-label="${label}: ${count(total, "task")}, at most ${number(most)} in ${span(bars[0].to - bars[0].from)}"
        width="100%"
        height=${height}
      >
        ${[0.5, 1].map((part) => html`<line class="grid" x1="0" x2="100%" y1=${height - part * (height - 4)} y2=${height - part * (height - 4)} />`)}
        ${bars.map((bar, n) => {
          const tall = bar.n ? Math.max(3, (bar.n / most) * (height - 4)) : 0;
          return html`<g
            ><title>
              ${`${when(bar.from)} to ${clock(bar.to)}: ${bar.more ? "at least " : ""}${count(bar.n, "task")}`}
            </title>
            <rect class="back" x="${n * width}%" width="${width}%" y="0" height=${height} />
            ${bar.more && html`<rect class="unknown" x="${n * width}%" width="${width}%" y="0" height=${height} />`}
            <rect
              class="bar ${bar.kind ?? ""}"
              x="${n * width + width * 0.08}%"
              width="${width * 0.84}%"
              y=${height - tall}
              height=${tall}
          /></g>`;
        })}
      </svg>
    </div>
    <${Axis} from=${from} to=${to} now=${now} />
  </figure>`;
}

const ENDS = {
  done: "done",
  again: "again",
  retry: "failed",
  drop: "failed",
  lapsed: "failed",
  taken: "failed",
  expired: "failed",
};

/** Spans of a task's life by its timeline: waiting, late, running; [{from, to, kind, text}], and its moments. */
function life(why, task, now) {
  const spans = [],
    moments = [];
  let since = Date.parse(task.created_at),
    run = null;
  const entries = why.timeline.map((one) => ({ ...one, ms: Date.parse(one.at) }));
  if (entries.length && why.forgotten) since = entries[0].ms;
  for (const one of entries) {
    if (one.event === "claimed") {
      const due = one.ms - (one.late_ms ?? 0);
      if (due > since)
        spans.push({ from: since, to: due, kind: "wait", text: `Waited ${span(due - since)} for its due time` });
      if (one.late_ms > 0)
        spans.push({ from: Math.max(since, due), to: one.ms, kind: "late", text: `Late by ${span(one.late_ms)}` });
      run = one;
      since = one.ms;
    } else if (one.event in ENDS || (run && one.ran_ms !== undefined)) {
      const from = run?.ms ?? one.ms - (one.ran_ms ?? 0);
      spans.push({
        from,
        to: Math.max(one.ms, from + (one.ran_ms ?? 0)),
        kind: `run ${ENDS[one.event] ?? "failed"}`,
        text: one.text,
      });
      run = null;
      since = one.ms;
    } else {
      moments.push({ at: one.ms, text: one.text, kind: one.event });
    }
  }
  const due = Date.parse(task.due_at);
  if (task.state === "leased")
    spans.push({ from: since, to: now, kind: "run", text: `Runs for ${span(Math.max(0, now - since))}` });
  if (task.state === "scheduled") {
    if (Math.min(due, now) > since)
      spans.push({ from: since, to: Math.min(due, now), kind: "wait", text: "Waits for its due time" });
    if (due < now) spans.push({ from: Math.max(due, since), to: now, kind: "late", text: why.waits.text });
    else if (due < Date.parse("9000-01-01"))
      spans.push({ from: Math.max(now, since), to: due, kind: "ahead", text: `Due ${distance(due, now)}` });
  }
  return { spans, moments };
}

/** A task's life on an axis of time. */
export function Life({ why, task, now }) {
  const { spans, moments } = life(why, task, now);
  const times = [...spans.flatMap((one) => [one.from, one.to]), ...moments.map((one) => one.at)];
  if (!times.length) return null;
  let from = Math.min(...times),
    to = Math.max(...times);
  const room = Math.max((to - from) * 0.02, 500);
  from -= room;
  to += room;
  const x = scale(from, to);
  const wide = (one) => `${Math.max(0, ((one.to - one.from) / (to - from)) * 100)}%`;
  const runs = spans.filter((one) => one.kind.startsWith("run")).length;
  return html`<figure class="plot life">
    <svg
      role="img"
      aria-label="History of the task: ${count(runs, "run")} within ${span(to - from)}; the list below has each entry"
      width="100%"
      height="62"
    >
      <line class="grid" x1="0" x2="100%" y1="40" y2="40" />
      ${spans.map(
        (one) =>
          html`<g
            ><title>${`${one.text}\n${when(one.from)} – ${when(one.to)}`}</title>${
              one.kind.startsWith("run")
                ? html`<rect class=${one.kind} x=${x(one.from)} y="14" width=${wide(one)} height="26" /><line
                      class="mark ${one.kind}"
                      x1=${x(one.from)}
                      x2=${x(one.from)}
                      y1="14"
                      y2="40"
                    />${one.kind !== "run" && html`<circle class=${one.kind} cx=${x(one.to)} cy="14" r="4" />`}`
                : html`<rect class=${one.kind} x=${x(one.from)} y="34" width=${wide(one)} height="12" />`
            }</g
          >`,
      )}
      ${moments.map((one) => html`<g><title>${`${one.text}\n${when(one.at)}`}</title><line class="moment" x1=${x(one.at)} x2=${x(one.at)} y1="24" y2="54" /><circle class="moment" cx=${x(one.at)} cy="54" r="4" /></g>`)}
      ${now > from && now < to && html`<line class="now" x1=${x(now)} x2=${x(now)} y1="0" y2="62" />`}</svg
    ><${Axis} from=${from} to=${to} now=${now} />
    <figcaption class="legend">
      <span class="key wait">waits</span><span class="key late">late</span><span class="key run">runs</span
      ><span class="key done">done</span><span class="key again">again</span><span class="key failed">failed</span>
    </figcaption>
  </figure>`;
}

const DENSE = 200;

/** Lanes of what fires when: [{id, label, times: [{at, local, clock_change}], known, paused}]; after `known`, times are not
 * known. `changes` of clocks are drawn through. */
export function Lanes({ lanes, from, to, now, changes, label }) {
  const x = scale(from, to);
  return html`<div class="lanes" role="group" aria-label=${label}>
    ${lanes.map(
      (lane) =>
        html`<div class="lane" key=${lane.id}>
          <span class="name">${lane.label}</span>
          <svg
            role="img"
            aria-label="${lane.id}: ${lane.times ? `${lane.known < to ? "at least " : ""}${count(lane.times.length, "time")}` : "loading"}${lane.paused ? ", paused" : ""}"
            width="100%"
            height="22"
          >
            <line class="grid" x1="0" x2="100%" y1="11" y2="11" />
            ${changes.map((one) => html`<line class="change" x1=${x(one.at)} x2=${x(one.at)} y1="0" y2="22"><title>${changeText(one)}</title></line>`)}
            ${lane.known < to && html`<rect class="unknown" x=${x(lane.known)} y="2" width="${100 - parseFloat(x(lane.known))}%" height="18"><title>It fires on; further times are not drawn.</title></rect>`}
            ${lane.times?.length > DENSE ? html`<rect class="band ${lane.paused ? "paused" : ""}" x=${x(Date.parse(lane.times[0].at))} y="7" height="8" width="${parseFloat(x(Date.parse(lane.times.at(-1).at))) - parseFloat(x(Date.parse(lane.times[0].at)))}%"><title>${count(lane.times.length, "time")}, the first ${when(Date.parse(lane.times[0].at), now)}</title></rect>` : null}
            ${(lane.times ?? []).filter((one) => lane.times.length <= DENSE || one.clock_change).map((one) => html`<circle class="${one.clock_change ? "changed" : ""} ${lane.paused ? "paused" : ""}" cx=${x(Date.parse(one.at))} cy="11" r=${lane.times.length > 110 ? 3 : 4}><title>${`${when(Date.parse(one.at), now)} (${distance(Date.parse(one.at), now)})\n${one.local.slice(0, 16).replace("T", " ")} in its zone${one.clock_change ? "\nThe zone's clocks changed since the time before it." : ""}`}</title></circle>`)}
            <line class="now" x1=${x(now)} x2=${x(now)} y1="0" y2="22" />
          </svg>
        </div>`,
    )}
    <div class="lane"><span class="name"></span><${Axis} from=${from} to=${to} now=${now} /></div>
  </div>`;
}

export const changeText = (one) =>
  `Clocks of ${one.zone} go ${one.minutes > 0 ? "forward" : "back"} by ${span(Math.abs(one.minutes) * MIN)}: ${dayName(one.at)} ${clock(one.at)}`;

/** Five weeks of days, each with what fires on it. */
export function Calendar({ lanes, from, to, now, changes }) {
  const start = startOfWeek(from);
  const days = [];
  for (let n = 0; n < 35; n++) {
    const at = new Date(start);
    at.setDate(at.getDate() + n);
    days.push(at.getTime());
  }
  const byDay = new Map();
  for (const lane of lanes) {
    for (const one of lane.times ?? []) {
      const day = dayOf(Date.parse(one.at));
      if (!byDay.has(day)) byDay.set(day, new Map());
      const inDay = byDay.get(day);
      if (!inDay.has(lane.id)) inDay.set(lane.id, { lane, times: [] });
      inDay.get(lane.id).times.push(one);
    }
  }
  return html`<ol class="calendar" aria-label="Calendar of what fires">
    ${days.map((at) => {
      const day = dayOf(at),
        inDay = [...(byDay.get(day)?.values() ?? [])];
      const changed = changes.filter((one) => dayOf(one.at) === day);
      for (const lane of lanes)
        if (lane.known < at + DAY && at <= to && !byDay.get(day)?.has(lane.id)) inDay.push({ lane, times: [] });
      return html`<li
        key=${day}
        class="${day === dayOf(now) ? "today" : ""} ${at + DAY < now ? "past" : ""} ${at > to ? "beyond" : ""}"
      >
        <h3>${dayName(at)}</h3>
        ${changed.map((one) => html`<span class="chip warn" title=${changeText(one)}>clocks ${one.minutes > 0 ? "forward" : "back"}</span>`)}
        <ul>
          ${inDay.slice(0, 5).map(
            ({ lane, times }) =>
              html`<li
                class=${lane.paused ? "soft" : ""}
                title=${
                  times
                    .slice(0, 20)
                    .map((one) => clock(Date.parse(one.at)))
                    .join(", ") || "It fires on; its times are not counted."
                }
              >
                <span class="soft"
                  >${times.length > 1 ? `${number(times.length)}${lane.known < at + DAY ? "+" : ""}×` : times.length ? clock(Date.parse(times[0].at)) : "…"}</span
                >${" "}
                ${lane.label}
              </li>`,
          )}
          ${inDay.length > 5 && html`<li class="soft">${number(inDay.length - 5)} more</li>`}
        </ul>
      </li>`;
    })}
  </ol>`;
}

export function startOfWeek(at) {
  const date = new Date(at);
  date.setHours(0, 0, 0, 0);
  date.setDate(date.getDate() - ((date.getDay() + 6) % 7));
  return date.getTime();
}
