// The dead: grouped by error, since when, how many each hour; some or a whole group replayed or deleted.
import { allQueues, orRejection, pages, queuePath } from "./api.mjs";
import { count, html, number } from "./lib.mjs";
import { useLive } from "./live.mjs";
import { DeadGroup, Unread } from "./overview.mjs";
import { Empty, Failure, Panel, QueueLink, Rows, Waiting } from "./parts.mjs";
import { Bars } from "./plots.mjs";
import { to } from "./route.mjs";
import { Act, session } from "./session.mjs";
import { TASK_COLUMNS, openTask, taskRow, useChosen, useTasks } from "./tasks.mjs";
import { actOnAll, actOnChosen, replayMany } from "./task_actions.mjs";
import { present } from "./times.mjs";

const LOOKS = 5;

/** Groups of a queue's dead tasks; pages of 10,000 tasks are added up. */
async function groups(queue, from, filter = {}) {
  const found = await pages(
    (cursor) => from(queuePath(queue, "/dead"), { ...filter, limit: 10_000, cursor }),
    (page) => page.next_cursor,
    LOOKS,
  );
  const sums = new Map();
  for (const group of found.pages.flatMap((page) => page.errors)) {
    const key = `${group.kind}\n${group.error}`,
      sum = sums.get(key);
    sums.set(
      key,
      sum
        ? {
            ...sum,
            count: sum.count + group.count,
            since: sum.since < group.since ? sum.since : group.since,
            ...(sum.latest < group.latest && { latest: group.latest, example: group.example }),
          }
        : group,
    );
  }
  return { queue, more: !!found.next, errors: [...sums.values()].sort((one, other) => other.count - one.count) };
}

async function everywhere(from) {
  const queues = (await allQueues(from))
    .filter((one) => one.tasks.dead)
    .sort((one, other) => other.tasks.dead - one.tasks.dead);
  const found = queues.slice(0, 20).map(async (one) => ({ queue: one.queue, ...(await orRejection(groups(one.queue, from))) }));
  return { queues, groups: await Promise.all(found) };
}

export function Dead() {
  const live = useLive("dead", everywhere, 10_000);
  return html`<div class="title"><h1>Dead tasks</h1></div>
    <${Waiting} live=${live}
      >${() => {
        const all = live.data.groups.flatMap((one) => (one.errors ?? []).map((group) => ({ queue: one.queue, group })));
        all.sort((one, other) => other.group.count - one.group.count);
        const total = live.data.queues.reduce((sum, one) => sum + one.tasks.dead, 0);
        if (!total) return html`<p class="fine">No task is dead.</p>`;
        return html`<p class="soft">
            ${count(total, "dead task")} in ${count(live.data.queues.length, "queue")}, by error; # is in place of
            numbers and ids. A dead task is kept until its retention ends, and its id stays taken until
            then.${live.data.queues.length > 20 && " The 20 queues with most of them are looked at."}
          </p>
          <ul class="findings">
            ${live.data.groups.filter((one) => one.rejected).map((one) => html`<${Unread} key=${one.queue} ...${one} />`)}
            ${all.map(({ queue, group }) => html`<${DeadGroup} key=${`${queue} ${group.kind} ${group.error}`} queue=${queue} group=${group} />`)}
          </ul>`;
      }}<//
    >`;
}

/** The dead of a queue, or one group of them: `?kind=…&error=…`. */
export function DeadOf({ queue, query }) {
  const filter = { ...(query.kind && { kind: query.kind }), ...(query.error && { error: query.error }) };
  const live = useLive(`dead ${queue} ${JSON.stringify(filter)}`, (from) => groups(queue, from, filter), 10_000);
  const list = useTasks({ queue, state: "dead", ...filter }, 10);
  const { chosen, choose, clear } = useChosen(list.key);
  const picked = [...chosen.values()];
  const after = () => {
    clear();
    list.reload();
  };
  const whole = query.error
    ? html`Kind ${query.kind ?? "any"}, error <q>${query.error}</q>`
    : html`All dead tasks of <code>${queue}</code>`;
  const found = live.data?.errors ?? [];
  const total = found.reduce((sum, group) => sum + group.count, 0);
  return html`<div class="title">
      <h1>Dead in <${QueueLink} queue=${queue} /></h1>
      <div class="buttons">
        ${total > 0 && html`<${Act} kind="main" onClick=${() => replayMany(queue, filter, whole, after)}>Replay all…<//><${Act} kind="danger" onClick=${() => actOnAll("purge", queue, { state: "dead", ...filter }, whole, after)}>Delete all…<//>`}
      </div>
    </div>
    ${query.error && html`<p class="why bad"><strong>${query.kind}:</strong> ${query.error} <a href=${to(["dead", queue])}>All errors of this queue</a></p>`}
    <${Waiting} live=${live}
      >${() =>
        total
          ? html`${
                !query.error &&
                html`<ul class="findings">
                  ${found.map((group) => html`<${DeadGroup} key=${group.kind + group.error} queue=${queue} group=${group} after=${after} />`)}
                </ul>`
              }
              <${Panel}
                title="Deaths"
                aside=${html`<span class="soft">${live.data.more && "at least "}${count(total, "task")}</span>`}
                ><${Deaths} rows=${list.rows} more=${!!list.next}
              /><//>`
          : html`<p class="fine">No dead task${query.error ? " of this error" : ""} is left.</p>`}<//
    >
    ${
      list.rows.length > 0 &&
      html`<div class="bar" role="toolbar" aria-label="Actions on dead tasks">
          <span role="status"
            >${count(list.rows.length, "task")}${list.next ? " and more" : ""}, the oldest
            first${chosen.size ? html`, <strong>${number(chosen.size)} chosen</strong>` : ""}</span
          >
          ${chosen.size > 0 && html`<${Act} onClick=${() => actOnChosen("replay", picked, after)}>Replay chosen…<//><${Act} kind="danger" onClick=${() => actOnChosen("delete", picked, after)}>Delete chosen…<//><button type="button" class="quiet" onClick=${clear}>Choose none</button>`}
        </div>
        <${Rows}
          label="Dead tasks"
          rows=${list.rows}
          columns=${TASK_COLUMNS}
          row=${taskRow}
          id=${(task) => task.id}
          onEnd=${list.more}
          onOpen=${openTask}
          chosen=${chosen}
          onChoose=${session.get()?.read_only === false ? choose : undefined}
          total=${list.next ? -1 : list.rows.length + 1}
        />`
    }
    ${list.error && html`<${Failure} error=${list.error} />`}
    ${!list.loading && !list.rows.length && total > 0 && html`<${Empty}>The list is empty by now.<//>`}`;
}

const SIZES = [60_000, 300_000, 900_000, 3_600_000, 6 * 3_600_000, 86_400_000, 7 * 86_400_000];

/** How many died when, of those that were read so far. */
function Deaths({ rows, more }) {
  const at = rows.map((task) => Date.parse(task.ended_at ?? task.due_at)).sort((one, other) => one - other);
  if (!at.length) return null;
  const now = present();
  const size = SIZES.find((one) => (now - at[0]) / one <= 40) ?? SIZES.at(-1);
  const first = Math.floor(at[0] / size) * size;
  const bars = [];
  for (let from = first; from <= now; from += size)
    bars.push({ from, to: from + size, n: 0, kind: "dead", more: more && from + size > at.at(-1) });
  for (const one of at) bars[Math.floor((one - first) / size)].n++;
  return html`<${Bars} label="Deaths" bars=${bars} now=${now} />
    <p class="soft">${more ? "Of the tasks that are listed so far. Shaded: there may be more." : ""}</p>`;
}
