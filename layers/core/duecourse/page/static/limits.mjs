// Limits of every queue, and what each holds back now.
import { allQueues, orRejection } from "./api.mjs";
import { html } from "./lib.mjs";
import { useLive } from "./live.mjs";
import { Health, heldBack } from "./overview.mjs";
import { Empty, Meter, Panel, QueueLink, Table, Waiting } from "./parts.mjs";
import { changeQueue, rateText } from "./queue_actions.mjs";
import { Act } from "./session.mjs";
import { Sentence, duration, spanOf } from "./times.mjs";

const LOOKED = 12;

async function causes(queues, from) {
  const late = queues
    .filter((one) => duration(one.oldest_overdue) > 0)
    .sort((one, other) => duration(other.oldest_overdue) - duration(one.oldest_overdue))
    .slice(0, LOOKED);
  const found = await Promise.all(late.map(async (one) => [one.queue, await orRejection(heldBack(one.queue, from))]));
  return new Map(found.filter(([, cause]) => !cause?.rejected));
}

const none = (value) => value ?? html`<span class="none">–</span>`;

export function Limits() {
  const live = useLive("queues", allQueues, 4_000);
  const why = useLive(live.data && "held back", (from) => causes(live.data, from), 8_000);
  return html`<div class="title"><h1>Limits</h1></div>
    <${Waiting} live=${live}
      >${() =>
        live.data.length
          ? html`<${Panel} title="What each queue may do, and what that holds back now">
              <${Table}
                label="Limits"
                columns=${[["Queue"], ["State"], ["Running", "n"], ["Rate", "n"], ["One tenant", "n"], ["Priority", "n"], ["Retention", "n"], ["Oldest overdue", "n"], ["Holds back"], ["", "act"]]}
              >
                ${live.data.map(
                  (queue) =>
                    html`<tr key=${queue.queue}>
                      <th scope="row"><${QueueLink} queue=${queue.queue} /></th>
                      <td><${Health} queue=${queue} /></td>
                      <td class="n"><${Meter} used=${queue.tasks.leased} limit=${queue.max_running} /></td>
                      <td class="n">${queue.rate ? rateText(queue.rate) : none()}</td>
                      <td class="n">${none(queue.tenant_max_running)}</td>
                      <td class="n">${queue.priority}</td>
                      <td class="n">${queue.retention ? spanOf(queue.retention) : none()}</td>
                      <td class="n">${duration(queue.oldest_overdue) ? spanOf(queue.oldest_overdue) : none()}</td>
                      <td class="wrap">
                        ${why.data?.get(queue.queue) ? html`<${Sentence} text=${why.data.get(queue.queue).waits.text} />` : duration(queue.oldest_overdue) ? html`<span class="none">…</span>` : html`<span class="none">nothing</span>`}
                      </td>
                      <td class="act"><${Act} kind="quiet" onClick=${() => changeQueue(queue)}>Change…<//></td>
                    </tr>`,
                )}<//
              ><//
            >`
          : html`<${Empty}>No queue yet: the first task makes one.<//>`}<//
    >`;
}
