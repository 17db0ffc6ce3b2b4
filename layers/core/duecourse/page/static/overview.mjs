// The first view: what is wrong, since when, why, and what may be done; then the queues, and what comes.
import { allQueues, orRejection, pages, queuePath, taskPath } from "./api.mjs";
import { Failing, failing, failingOf } from "./failing.mjs";
import { History } from "./history.mjs";
import { count, html, number, useState } from "./lib.mjs";
import { useLive } from "./live.mjs";
import { Bars } from "./plots.mjs";
import { Chip, Choice, Empty, Meter, Number, Panel, QueueLink, Table, TaskLink, Waiting } from "./parts.mjs";
import { changeQueue, pauseQueue, rateText, resumeQueue } from "./queue_actions.mjs";
import { tenant, to } from "./route.mjs";
import { addressOf } from "./schedule_actions.mjs";
import { Act } from "./session.mjs";
import { replayMany } from "./task_actions.mjs";
import { Sentence, Time, duration, present, span, spanOf } from "./times.mjs";

export const LATE_MS = 60_000;
const MOST = 6;
const overdueMs = (queue) => duration(queue.oldest_overdue);

/** Limits that `why` names, as settings of a queue. */
/** Limits that running tasks use up: one that is stuck may be the cause. */
const FULL = new Set(["max_running", "tenant_max_running"]);
const SETTING = { max_running: "max_running", tenant_max_running: "tenant_max_running", rate: "rate" };

/** Why the oldest due task of a queue waits, in the words of `why`. */
export async function heldBack(queue, get) {
  const { tasks } = await get("/tasks", { queue, state: "scheduled", limit: 1 });
  if (!tasks.length) return null;
  const why = await get(taskPath(tasks[0].id, "/why"), { queue });
  return { task: tasks[0], waits: why.waits };
}

const deadOf = async (queue, get) => get(queuePath(queue, "/dead"), { limit: 10_000 });

/** Causes of late queues, and errors of dead tasks: of the queues that are worst. */
async function findings(queues, get) {
  const late = queues
    .filter((one) => overdueMs(one) >= LATE_MS)
    .sort((one, other) => overdueMs(other) - overdueMs(one))
    .slice(0, MOST);
  const dead = queues
    .filter((one) => one.tasks.dead)
    .sort((one, other) => other.tasks.dead - one.tasks.dead)
    .slice(0, MOST);
  const [causes, deaths, fails] = await Promise.all([
    Promise.all(late.map(async (one) => [one.queue, await orRejection(heldBack(one.queue, get))])),
    Promise.all(
      dead.map(async (one) => ({ queue: one.queue, ...(await orRejection(deadOf(one.queue, get))) })),
    ),
    failing(queues, get),
  ]);
  return { causes: new Map(causes.filter(([, cause]) => !cause?.rejected)), deaths, fails };
}

export function Overview() {
  const queues = useLive("queues", allQueues, 4_000);
  const found = useLive(queues.data && "findings", (from) => findings(queues.data, from), 10_000);
  return html`<h1 class="hidden">Overview</h1>
    <${Waiting} live=${queues}
      >${() =>
        html`<${Wrong} queues=${queues.data} found=${found.data} />
          <${Queues} queues=${queues.data} />
          <div class="columns"><${Coming} queues=${queues.data} /><${NextSchedules} queues=${queues.data} /></div>
          <${History} queues=${queues.data} />`}<//
    >`;
}

function Wrong({ queues, found }) {
  const items = [];
  for (const queue of queues) {
    const late = overdueMs(queue) >= LATE_MS,
      cause = found?.causes.get(queue.queue);
    if (queue.paused || late)
      items.push({
        weight: overdueMs(queue) + (late ? 1e9 : 0),
        node: html`<${LateQueue} key=${`late ${queue.queue}`} queue=${queue} cause=${cause} />`,
      });
    if (queue.lapsed?.runs)
      items.push({
        weight: 1e8 + queue.lapsed.runs,
        node: html`<${Lapsed} key=${`lapsed ${queue.queue}`} queue=${queue} />`,
      });
    if (queue.lagging?.length)
      items.push({
        weight: 1e7,
        node: html`<li key=${`lags ${queue.queue}`} class="finding warn">
          <div class="what">
            Shards ${queue.lagging.join(", ")} of <${QueueLink} queue=${queue.queue} /> have older settings
          </div>
          <p>The next tick gives them the settings.</p>
        </li>`,
      });
  }
  for (const one of found?.deaths ?? []) {
    if (one.rejected) items.push({ weight: 2e9, node: html`<${Unread} key=${`unread ${one.queue}`} ...${one} />` });
    for (const group of one.errors?.slice(0, MOST) ?? [])
      items.push({
        weight: 2e9 + group.count * 1e6,
        node: html`<${DeadGroup}
          key=${`${one.queue} ${group.kind} ${group.error}`}
          queue=${one.queue}
          group=${group}
        />`,
      });
  }
  for (const one of found?.fails ?? [])
    items.push({ weight: 5e8 + one.count, node: html`<${Failing} key=${`fails ${one.queue}`} found=${one} />` });
  for (const one of found?.deaths ?? []) {
    const others = (queues.find((queue) => queue.queue === one.queue)?.tasks.dead ?? 0) - one.tasks;
    if (others > 0 && !one.next_cursor)
      items.push({
        weight: 1e6,
        node: html`<li key=${`others ${one.queue}`} class="finding warn">
          <div class="what">
            <strong>${number(others)}</strong> dead in <${QueueLink} queue=${one.queue} />: tasks of other tenants
          </div>
          <p>The queue's page names them. This page shows the tasks of one tenant at a time.</p>
        </li>`,
      });
  }
  items.sort((one, other) => other.weight - one.weight);
  const looked = found !== undefined;
  return html`<${Panel}
    title="What is wrong"
    class="wrong"
    aside=${items.length > 0 && html`<span class="soft">${count(items.length, "finding")}</span>`}
  >
    ${
      items.length
        ? html`<ul class="findings">
            ${items.slice(0, 12).map((one) => one.node)}
          </ul>`
        : looked
          ? html`<p class="fine">
              Nothing: no queue is late or paused, no task is dead or fails in a row, and no run lapsed in the last
              hour.
            </p>`
          : html`<p class="empty" role="status">Looking…</p>`
    }
    ${items.length > 12 && html`<p class="soft">${count(items.length - 12, "more finding")}: see the queues below.</p>`}<//
  >`;
}

function LateQueue({ queue, cause }) {
  const late = overdueMs(queue),
    setting = SETTING[cause?.waits.for];
  return html`<li class="finding ${late >= LATE_MS ? "bad" : "warn"}">
    <div class="what">
      <${QueueLink} queue=${queue.queue} />${" "}
      ${queue.paused ? html`is paused${late > 0 && html`, and late by <strong>${span(late)}</strong>`}` : html`is late by <strong>${span(late)}</strong>`}
    </div>
    <p>
      ${late > 0 && html`Since <${Time} at=${present() - late} />. `}${cause ? html`<${TaskLink} id=${cause.task.id} queue=${queue.queue} />: <${Sentence} text=${cause.waits.text} />` : queue.paused ? "No task is claimed. Nothing is overdue yet." : ""}
    </p>
    <div class="buttons">
      ${queue.paused ? html`<${Act} onClick=${() => resumeQueue(queue.queue)}>Resume…<//>` : setting && html`<${Act} onClick=${() => changeQueue(queue, [setting])}>Change the limit…<//>`}
      ${FULL.has(cause?.waits.for) && queue.tasks.leased > 0 && html`<a class="button quiet" href=${to(["tasks"], { queue: queue.queue, state: "leased" })}>${number(queue.tasks.leased)} running</a>`}
      <a class="button quiet" href=${to(["tasks"], { queue: queue.queue, state: "scheduled" })}
        >${count(queue.tasks.scheduled, "task")}</a
      >
    </div>
  </li>`;
}

const Lapsed = ({ queue }) =>
  html`<li class="finding warn">
    <div class="what">
      ${count(queue.lapsed.runs, "run")} of <${QueueLink} queue=${queue.queue} /> lapsed in the last hour
    </div>
    <p>
      A worker died, or took longer than its lease: the task runs again, and an attempt is spent.${" "}
      ${queue.lapsed.at_target ? `${number(queue.lapsed.at_target)} had begun at their target.` : ""}
    </p>
  </li>`;

/** A queue whose dead tasks could not be read. */
export const Unread = ({ queue, rejected }) =>
  html`<li class="finding bad">
    <div class="what">The dead tasks of <${QueueLink} queue=${queue} /> cannot be read</div>
    <p>${rejected.message}</p>
  </li>`;

export function DeadGroup({ queue, group, after }) {
  const filter = { kind: group.kind, error: group.error };
  return html`<li class="finding bad">
    <div class="what">
      <strong>${number(group.count)}</strong> dead in <${QueueLink} queue=${queue} />:${" "}
      <a href=${to(["dead", queue], filter)} class="error">${group.error}</a>
    </div>
    <p>
      Kind ${group.kind}. Since <${Time} at=${group.since} how="both" />, last${" "}
      <${Time} at=${group.latest} how="both" />. Example: <${TaskLink} id=${group.example} queue=${queue} />
    </p>
    <div class="buttons">
      <${Act} onClick=${() => replayMany(queue, filter, html`Kind ${group.kind}, error <q>${group.error}</q>`, after)}
        >Replay…<//
      ><a class="button quiet" href=${to(["dead", queue], filter)}>Look</a>
    </div>
  </li>`;
}

/** One word on a queue: how it does. With `quiet`, none for one that does well. */
export function Health({ queue, quiet }) {
  const late = overdueMs(queue);
  if (queue.paused) return html`<${Chip} kind="warn">paused<//>`;
  if (late >= LATE_MS) return html`<${Chip} kind="dead">late<//>`;
  if (queue.max_running && queue.tasks.leased >= queue.max_running)
    return html`<${Chip} kind="warn" title="As many tasks run as max_running allows.">full<//>`;
  return quiet ? null : html`<${Chip} kind="done">ok<//>`;
}

const NUMBER = "n";
function Queues({ queues }) {
  const [all, setAll] = useState(false);
  // The worst first: late, then paused, then dead; the others by name.
  const rank = (one) =>
    (overdueMs(one) >= LATE_MS ? 1e12 + overdueMs(one) : 0) + (one.paused ? 1e11 : 0) + one.tasks.dead * 1e3;
  const sorted = [...queues].sort((one, other) => rank(other) - rank(one) || one.queue.localeCompare(other.queue));
  const shown = all ? sorted : sorted.slice(0, 25);
  if (!queues.length) return html`<${Panel} title="Queues"><${Empty}>No queue yet: the first task makes one.<//><//>`;
  return html`<${Panel} title="Queues" aside=${html`<span class="soft">${count(queues.length, "queue")}</span>`}>
    <${Table}
      label="Queues"
      columns=${[["Queue"], ["State"], ["Oldest overdue", NUMBER], ["Scheduled", NUMBER], ["Running", NUMBER], ["Dead", NUMBER], ["Done", NUMBER], ["Late p50", NUMBER], ["Late p99", NUMBER], ["Next schedule"], ["", "act"]]}
    >
      ${shown.map(
        (queue) =>
          html`<tr key=${queue.queue}>
            <th scope="row"><${QueueLink} queue=${queue.queue} /></th>
            <td><${Health} queue=${queue} /></td>
            <td class="n">
              ${overdueMs(queue) ? html`<span class=${overdueMs(queue) >= LATE_MS ? "bad" : ""}>${spanOf(queue.oldest_overdue)}</span>` : html`<span class="none">–</span>`}
            </td>
            <td class="n">
              <a href=${to(["tasks"], { queue: queue.queue, state: "scheduled" })}
                ><${Number} n=${queue.tasks.scheduled}
              /></a>
            </td>
            <td class="n"><${Meter} used=${queue.tasks.leased} limit=${queue.max_running} /></td>
            <td class="n">
              <a href=${to(["dead", queue.queue])}><${Number} n=${queue.tasks.dead} kind="bad" /></a>
            </td>
            <td class="n">
              <a href=${to(["tasks"], { queue: queue.queue, state: "done" })}><${Number} n=${queue.tasks.done} /></a>
            </td>
            <td class="n">${spanOf(queue.lateness.p50)}</td>
            <td class="n">${spanOf(queue.lateness.p99)}</td>
            <td>
              ${queue.schedules?.next_at ? html`<${Time} at=${queue.schedules.next_at} how="distance" />` : html`<span class="none">–</span>`}
            </td>
            <td class="act">
              ${queue.paused ? html`<${Act} kind="quiet" onClick=${() => resumeQueue(queue.queue)}>Resume…<//>` : html`<${Act} kind="quiet" onClick=${() => pauseQueue(queue.queue)}>Pause…<//>`}
            </td>
          </tr>`,
      )}<//
    >
    ${sorted.length > shown.length && html`<button class="link" onClick=${() => setAll(true)}>All ${number(sorted.length)} queues</button>`}<//
  >`;
}

// What comes due, from the first tasks of the fullest queues.

const SPANS = { hour: [3_600_000, 12], day: [86_400_000, 24] };

/** Bars of what comes due; past the last task of a full page a bar is a lower bound. */
function dueBars(pages, now, [length, parts]) {
  const size = length / parts;
  const tasks = pages.flatMap((page) => page.tasks).map((task) => Date.parse(task.due_at));
  const known = Math.min(
    ...pages.map((page) => (page.next_cursor && page.tasks.length ? Date.parse(page.tasks.at(-1).due_at) : Infinity)),
  );
  return Array.from({ length: parts }, (_, n) => {
    const from = now + n * size;
    return {
      from,
      to: from + size,
      n: tasks.filter((at) => at >= from && at < from + size).length,
      more: from + size > known,
    };
  });
}

const DEEP = 4;

/** The first tasks of a queue, up to those that are due at `until`: one document, as of one page. */
async function upcoming(queue, until, get) {
  const found = await pages(
    (cursor) => get("/tasks", { queue, state: "scheduled", limit: 100, cursor }),
    (page) => (page.tasks.length && Date.parse(page.tasks.at(-1).due_at) > until ? null : page.next_cursor),
    DEEP,
  );
  return {
    tasks: found.pages.flatMap((page) => page.tasks.map(({ due_at }) => ({ due_at }))),
    next_cursor: found.pages.at(-1).next_cursor,
  };
}

function Coming({ queues }) {
  const [wide, setWide] = useState("hour");
  const fullest = [...queues]
    .filter((one) => one.tasks.scheduled)
    .sort((one, other) => other.tasks.scheduled - one.tasks.scheduled)
    .slice(0, 5);
  const live = useLive(
    fullest.length ? `due ${wide} ${fullest.map((one) => one.queue)}` : null,
    (from) => Promise.all(fullest.map((one) => upcoming(one.queue, present() + SPANS[wide][0], from))),
    30_000,
  );
  const overdue = (live.data ?? [])
    .flatMap((page) => page.tasks)
    .filter((task) => Date.parse(task.due_at) < present()).length;
  const bars = live.data ? dueBars(live.data, present(), SPANS[wide]) : [];
  return html`<${Panel}
    title="Comes due"
    aside=${html`<${Choice}
      label="Span"
      value=${wide}
      options=${[
        ["hour", "next hour"],
        ["day", "next day"],
      ]}
      onChange=${setWide}
    />`}
  >
    ${
      fullest.length
        ? html`<${Waiting} live=${live}
            >${() =>
              html`${overdue > 0 && html`<p class="overdue bad">${count(overdue, "task")} ${overdue === 1 ? "is" : "are"} overdue now.</p>`}<${Bars}
                  label="Tasks that come due"
                  bars=${bars}
                />
                <p class="soft">
                  Tasks of${" "}
                  ${fullest.length === 1 ? html`<${QueueLink} queue=${fullest[0].queue} />` : `the ${fullest.length} fullest queues`}.${bars.some((one) => one.more) ? " Shaded: there may be more." : ""}
                </p>`}<//
          >`
        : html`<${Empty}>No task is scheduled.<//>`
    }<//
  >`;
}

/** The next schedules of all queues that have some: [schedule], the earliest first. */
async function nextSchedules(queues, most, get) {
  const having = queues
    .filter((one) => one.schedules?.next_at)
    .sort((one, other) => one.schedules.next_at.localeCompare(other.schedules.next_at))
    .slice(0, most);
  const lists = await Promise.all(having.map((one) => get("/schedules", { queue: one.queue, limit: 100 })));
  return lists
    .flatMap((list) => list.schedules)
    .filter((one) => one.next.length)
    .sort((one, other) => one.next[0].at.localeCompare(other.next[0].at));
}

function NextSchedules({ queues }) {
  const some = queues.some((one) => one.schedules?.count);
  const live = useLive(some ? "next schedules" : null, (from) => nextSchedules(queues, 8, from), 20_000);
  return html`<${Panel} title="Fires next" aside=${html`<a href=${to(["schedules"])}>All schedules</a>`}>
    ${
      some
        ? html`<${Waiting} live=${live}
            >${() =>
              live.data.length
                ? html`<ul class="list">
                    ${live.data.slice(0, 8).map(
                      (one) =>
                        html`<li key=${`${one.queue} ${one.id}`}>
                          <a class="id" href=${addressOf(one)}>${one.id}</a><span class="soft">${one.queue}</span
                          ><span class="right"
                            ><${Time}
                              at=${one.next[0].due_at ?? one.next[0].at}
                              how="both"
                            />${one.next[0].clock_change && html` <${Chip} kind="warn">clocks change<//>`}</span
                          >
                        </li>`,
                    )}
                  </ul>`
                : html`<${Empty}>No schedule fires again: each is paused or over.<//>`}<//
          >`
        : html`<${Empty}>No schedule.<//>`
    }<//
  >`;
}

/** One queue: its settings, why it is late, its dead and its schedules. */
export function Queue({ name }) {
  const live = useLive(`queue ${name}`, (from) => from(queuePath(name)), 2_000);
  const cause = useLive(
    live.data && overdueMs(live.data.queue) >= LATE_MS ? `cause ${name}` : null,
    (from) => heldBack(name, from),
    6_000,
  );
  const fails = useLive(
    live.data?.queue.tasks.scheduled ? `fails of ${name}` : null,
    (from) => failingOf(name, from),
    10_000,
  );
  const dead = useLive(
    live.data?.queue.tasks.dead ? `dead of ${name}` : null,
    (from) => from(queuePath(name, "/dead"), { limit: 10_000 }),
    15_000,
  );
  const schedules = useLive(
    live.data?.queue.schedules?.count ? `schedules of ${name}` : null,
    (from) => from("/schedules", { queue: name, limit: 100 }),
    20_000,
  );
  return html`<${Waiting} live=${live}
    >${() => {
      const { queue } = live.data;
      return html`<div class="title">
          <h1>Queue ${name}</h1>
          <${Health} queue=${queue} />
          <div class="buttons">
            ${queue.paused ? html`<${Act} kind="main" onClick=${() => resumeQueue(name)}>Resume…<//>` : html`<${Act} onClick=${() => pauseQueue(name)}>Pause…<//>`}
            <${Act} onClick=${() => changeQueue(queue)}>Change…<//>
          </div>
        </div>
        ${
          (queue.paused || overdueMs(queue) >= LATE_MS || fails.data) &&
          html`<ul class="findings">
            ${(queue.paused || overdueMs(queue) >= LATE_MS) && html`<${LateQueue} queue=${queue} cause=${cause.data} />`}${fails.data && html`<${Failing} found=${fails.data} />`}
          </ul>`
        }
        <div class="columns">
          <${Panel} title="Tasks"><${Facts4} queue=${queue} /><//>
          <${Panel} title="Limits"><${Limits} queue=${queue} /><//>
        </div>
        ${
          dead.data?.errors.length > 0 &&
          html`<${Panel} title="Dead, by error"
            ><ul class="findings">
              ${dead.data.errors.map((group) => html`<${DeadGroup} key=${group.kind + group.error} queue=${name} group=${group} />`)}
            </ul><//
          >`
        }
        <${Tenants} queue=${queue} />
        ${
          schedules.data?.schedules.length > 0 &&
          html`<${Panel} title="Schedules"
            ><ul class="list">
              ${schedules.data.schedules.map((one) => html`<li key=${one.id}><a class="id" href=${addressOf(one)}>${one.id}</a><span class="soft">${one.kind}</span><span class="right">${one.paused ? html`<${Chip} kind="warn">paused<//>` : one.next[0] ? html`<${Time} at=${one.next[0].at} how="both" />` : "over"}</span></li>`)}
            </ul><//
          >`
        }
        <${History} queues=${[queue]} />`;
    }}<//
  >`;
}

const Facts4 = ({ queue }) =>
  html`<dl class="tiles">
    ${[
      ["Scheduled", queue.tasks.scheduled, { state: "scheduled" }],
      ["Running", queue.tasks.leased, { state: "leased" }],
      ["Dead", queue.tasks.dead, { state: "dead" }],
      ["Done", queue.tasks.done, { state: "done" }],
    ].map(
      ([name, n, filter]) =>
        html`<div>
          <dt>${name}</dt>
          <dd>
            <a
              href=${to(["tasks"], { queue: queue.queue, ...filter })}
              class=${filter.state === "dead" && n ? "bad" : ""}
              >${number(n)}</a
            >
          </dd>
        </div>`,
    )}
    <div>
      <dt>Oldest overdue</dt>
      <dd>${overdueMs(queue) ? spanOf(queue.oldest_overdue) : "–"}</dd>
    </div>
    <div>
      <dt>Late, p50 / p99 of the last hour</dt>
      <dd>${spanOf(queue.lateness.p50)} / ${spanOf(queue.lateness.p99)}</dd>
    </div>
  </dl>`;

/** Tenants that have dead tasks in a queue: each link leads to the same page of another tenant. */
function Tenants({ queue }) {
  const found = Object.entries(queue.dead_by_tenant ?? {}).sort(([, one], [, other]) => other - one);
  if (!found.some(([name]) => name !== (tenant() || "-"))) return null;
  return html`<${Panel} title="Dead, by tenant">
    <ul class="list">
      ${found.map(
        ([name, n]) => html`<li key=${name}>
          <a class="id" href=${to(["dead", queue.queue], { tenant: name === "-" ? "" : name })}>${name}</a>
          <span class="right bad">${number(n)}</span>
        </li>`,
      )}
    </ul>
  <//>`;
}

const Limits = ({ queue }) =>
  html`<dl class="facts">
    <div>
      <dt>Running</dt>
      <dd>
        <${Meter} used=${queue.tasks.leased} limit=${queue.max_running} />${" "}
        ${queue.max_running === null && html`<span class="soft">no limit</span>`}
      </dd>
    </div>
    <div>
      <dt>Rate</dt>
      <dd>${queue.rate ? rateText(queue.rate) : html`<span class="soft">no limit</span>`}</dd>
    </div>
    <div>
      <dt>Of one tenant</dt>
      <dd>${queue.tenant_max_running ?? html`<span class="soft">no limit</span>`}</dd>
    </div>
    <div>
      <dt>Priority</dt>
      <dd>${queue.priority}</dd>
    </div>
    <div>
      <dt>Retention</dt>
      <dd>${queue.retention ? spanOf(queue.retention) : html`<span class="soft">default</span>`}</dd>
    </div>
    <div>
      <dt>Lease</dt>
      <dd>${queue.lease ? spanOf(queue.lease) : html`<span class="soft">default</span>`}</dd>
    </div>
    ${
      queue.split.length > 1 &&
      html`<div>
        <dt>Shards</dt>
        <dd>${queue.split.map((one) => `${one.shard}: ${one.running} running`).join(", ")}</dd>
      </div>`
    }
  </dl>`;
