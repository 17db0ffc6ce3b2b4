// Numbers of queues over time: what was done and what failed, and how late runs were.
import { Problem, queuePath } from "./api.mjs";
import { html, isDots, number, script, useEffect, useLayoutEffect, useRef, useState } from "./lib.mjs";
import { useLive } from "./live.mjs";
import { Choice, Panel, Table } from "./parts.mjs";
import { clock, dayName, span, when } from "./times.mjs";

const SPANS = [
  ["1h", "hour"],
  ["1d", "day"],
  ["7d", "week"],
  ["90d", "90 days"],
];
const MOST = 6;
const COUNTS = [
  ["added", "Added", "--soft"],
  ["done", "Done", "--good"],
  ["retried", "Retried", "--warn"],
  ["dead", "Dead", "--bad"],
];
const LATE = [
  [0.5, "p50", "--run"],
  [0.99, "p99", "--warn"],
];

/** A deployment of an earlier release has no such route: then there is nothing to show, and it is not asked again. */
let unknown = false;

/** Lines of several queues as those of one: counts and histograms add up. */
function joined(documents) {
  const lines = new Map();
  for (const line of documents.flatMap((one) => one.lines)) {
    const sum = lines.get(line.at) ?? {
      at: line.at,
      late: [],
      ...Object.fromEntries(COUNTS.map(([name]) => [name, 0])),
    };
    for (const [name] of COUNTS) sum[name] += line[name];
    line.lateness.counts.forEach((n, power) => {
      sum.late[power] = (sum.late[power] ?? 0) + n;
    });
    lines.set(line.at, sum);
  }
  return [...lines.values()].sort((one, other) => one.at.localeCompare(other.at));
}

/** Duration in ms that a part of a histogram by powers of two did not exceed; null without any. */
function quantile(counts, part) {
  const total = counts.reduce((sum, n) => sum + (n ?? 0), 0);
  let seen = 0;
  for (let power = 0; power < counts.length; power++) {
    seen += counts[power] ?? 0;
    if (total && seen >= part * total) return 2 ** power;
  }
  return null;
}

export function History({ queues }) {
  const [wide, setWide] = useState("1h");
  const busiest = queues
    .filter((one) => !isDots(one.queue))
    .sort((one, other) => weight(other) - weight(one))
    .slice(0, MOST)
    .map((one) => one.queue);
  const live = useLive(
    unknown || !busiest.length ? null : `history ${wide} ${busiest}`,
    async (get) => {
      try {
        return joined(await Promise.all(busiest.map((queue) => get(queuePath(queue, "/history"), { span: wide }))));
      } catch (error) {
        if (!(error instanceof Problem) || ![403, 404].includes(error.status)) throw error;
        unknown = true;
        return null;
      }
    },
    60_000,
  );
  if (!live.data) return null;
  const step = wide === "1h" ? "minute" : wide === "90d" ? "day" : "hour";
  return html`<${Panel}
    title="Over time"
    aside=${html`<${Choice} label="Time" value=${wide} options=${SPANS} onChange=${setWide} />`}
  >
    <div class="columns">
      <${Plot}
        title="Tasks each ${step}"
        lines=${live.data}
        series=${COUNTS.map(([name, label, colour]) => ({ label, colour, value: (line) => line[name] }))}
        show=${(n) => (n === null ? "–" : number(n))}
      />
      <${Plot}
        title="Late"
        lines=${live.data}
        log=${true}
        series=${LATE.map(([part, label, colour]) => ({ label, colour, value: (line) => quantile(line.late, part) }))}
        show=${(ms) => (ms === null ? "–" : `≤ ${span(ms)}`)}
      />
    </div>
    ${queues.length > MOST && html`<p class="soft">Of the ${MOST} fullest queues.</p>`}
    <details>
      <summary>As a table</summary>
      <${Table}
        label="Numbers over time"
        columns=${[["From"], ...COUNTS.map(([, label]) => [label, "n"]), ...LATE.map(([, label]) => [`Late ${label}`, "n"])]}
      >
        ${[...live.data].reverse().map(
          (line) =>
            html`<tr key=${line.at}>
              <th scope="row">${when(Date.parse(line.at))}</th>
              ${COUNTS.map(([name]) => html`<td class="n">${number(line[name])}</td>`)}${LATE.map(([part]) => {
                const ms = quantile(line.late, part);
                return html`<td class="n">${ms === null ? "–" : span(ms)}</td>`;
              })}
            </tr>`,
        )}<//
      >
    </details><//
  >`;
}

const weight = (one) => one.tasks.done + one.tasks.dead + one.tasks.leased + one.tasks.scheduled;

/** The value that a colour of the sheet has in the present theme. */
function colourOf(name, beside) {
  const probe = document.createElement("i");
  probe.style.color = `var(${name})`;
  beside.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

const MARKS = [1, 10, 100, 1_000, 10_000, 60_000, 600_000, 3_600_000, 36_000_000, 86_400_000, 864_000_000];
const DARK = matchMedia("(prefers-color-scheme: dark)");

function Plot({ title, lines, series, show, log }) {
  const box = useRef(null);
  const [ready, setReady] = useState(!!self.uPlot);
  const [theme, setTheme] = useState(0);
  useEffect(() => {
    script("uPlot.iife.min.js").then(
      () => setReady(true),
      () => {},
    );
  }, []);
  useEffect(() => {
    const change = () => setTheme((n) => n + 1);
    DARK.addEventListener("change", change);
    const watch = new MutationObserver(change);
    watch.observe(document.documentElement, { attributeFilter: ["data-theme"] });
    return () => {
      DARK.removeEventListener("change", change);
      watch.disconnect();
    };
  }, []);
  useLayoutEffect(() => {
    if (!ready || !lines.length) return undefined;
    const node = box.current,
      width = () => Math.max(200, node.clientWidth);
    const axis = {
      size: 26,
      stroke: colourOf("--soft", node),
      grid: { stroke: colourOf("--line", node), width: 1 },
      ticks: { show: false },
      font: "11px system-ui, sans-serif",
    };
    const wide = Date.parse(lines.at(-1).at) - Date.parse(lines[0].at) > 86_400_000 * 1.5;
    const plot = new self.uPlot(
      {
        width: width(),
        height: 170,
        legend: { live: true },
        cursor: { y: false, points: { size: 6 } },
        scales: {
          y: log
            ? { distr: 3, range: (_, low, high) => [Math.min(1, low ?? 1), Math.max(10, (high ?? 1) * 2)] }
            : { range: (_, low, high) => [0, Math.max(4, Math.ceil((high ?? 0) * 1.1))] },
        },
        series: [
          { value: (_, at) => (at === null ? "–" : when(at * 1000)) },
          ...series.map((one) => ({
            label: one.label,
            stroke: colourOf(one.colour, node),
            width: 1.5,
            spanGaps: false,
            points: { show: lines.length < 70, size: 3 },
            value: (_, found) => show(found ?? null),
          })),
        ],
        axes: [
          {
            ...axis,
            values: (_, marks) => marks.map((at) => (wide ? dayName(at * 1000) : clock(at * 1000))),
            space: 70,
          },
          {
            ...axis,
            size: 60,
            ...(log && {
              splits: (_, n, low, high) => MARKS.filter((mark) => mark >= low && mark <= high),
              filter: (_, marks) => marks,
            }),
            values: (_, marks) => marks.map((at) => (log ? span(at) : number(at))),
          },
        ],
      },
      [lines.map((line) => Date.parse(line.at) / 1000), ...series.map((one) => lines.map(one.value))],
      node,
    );
    const watch = new ResizeObserver(() => plot.setSize({ width: width(), height: 170 }));
    watch.observe(node);
    return () => {
      watch.disconnect();
      plot.destroy();
    };
  }, [ready, lines, theme]);
  return html`<figure class="plot">
    <figcaption>${title}</figcaption>
    <div ref=${box} class="canvas" role="img" aria-label="${title}: the table below has the numbers"></div>
  </figure>`;
}
