// The page: its head, its views by address, its keys.
import { away } from "./api.mjs";
import { Dead, DeadOf } from "./dead.mjs";
import { Dialogs, ask } from "./dialog.mjs";
import { html, render, useEffect, useRef, useShared, useState } from "./lib.mjs";
import { Limits } from "./limits.mjs";
import { tryNow } from "./live.mjs";
import { Overview, Queue } from "./overview.mjs";
import { Failure } from "./parts.mjs";
import { Queries, Query } from "./queries.mjs";
import { Reminder, Reminders } from "./reminders.mjs";
import { go, route, tenant, to } from "./route.mjs";
import { Schedule, Schedules } from "./schedules.mjs";
import { Search } from "./search.mjs";
import { loadSession, session } from "./session.mjs";
import { Task } from "./task.mjs";
import { Tasks } from "./tasks.mjs";
import { ZONE, present, span, when } from "./times.mjs";

const VIEWS = [
  ["", "Overview", "o"],
  ["tasks", "Tasks", "t"],
  ["dead", "Dead", "d"],
  ["schedules", "Schedules", "s"],
  ["reminders", "Reminders", "r"],
  ["queries", "Queries", "q"],
  ["limits", "Limits", "l"],
];

function View({ parts, query }) {
  const [view = "", id] = parts;
  switch (parts.length > 2 ? "unknown" : view) {
    case "":
      return html`<${Overview} />`;
    case "queues":
      return id ? html`<${Queue} key=${id} name=${id} />` : html`<${Overview} />`;
    case "tasks":
      return id
        ? html`<${Task} key=${`${query.queue} ${id}`} id=${id} query=${query} />`
        : html`<${Tasks} query=${query} />`;
    case "dead":
      return id ? html`<${DeadOf} key=${id} queue=${id} query=${query} />` : html`<${Dead} />`;
    case "schedules":
      return id
        ? html`<${Schedule} key=${`${query.queue} ${id}`} id=${id} query=${query} />`
        : html`<${Schedules} query=${query} />`;
    case "reminders":
      return id ? html`<${Reminder} key=${id} id=${id} />` : html`<${Reminders} />`;
    case "queries":
      return id ? html`<${Query} key=${id} id=${id} />` : html`<${Queries} />`;
    case "limits":
      return html`<${Limits} />`;
    case "search":
      return html`<${Search} query=${query} />`;
    default:
      return html`<h1>No such view</h1>
        <p class="empty">This address leads nowhere. <a href=${to([])}>Overview</a></p>`;
  }
}

function App() {
  const { parts, query } = useShared(route);
  const found = useShared(session);
  const [failed, setFailed] = useState(null);
  const lost = useShared(away);
  useEffect(() => {
    if (found) return undefined;
    let timer;
    const load = () =>
      loadSession().then(
        () => setFailed(null),
        (error) => {
          setFailed(error);
          timer = setTimeout(load, Math.max(1_000, (away.get()?.next ?? 0) - Date.now()));
        },
      );
    load();
    return () => clearTimeout(timer);
  }, [!found]);
  useEffect(() => {
    document.title = [
      parts
        .map((part) => part || "")
        .reverse()
        .join(" · "),
      "duecourse",
    ]
      .filter(Boolean)
      .join(" · ");
  }, [parts.join("/")]);
  useEffect(keys, []);
  return html`<a
      class="skip"
      href="#main"
      onClick=${(event) => {
        event.preventDefault();
        document.querySelector("main").focus();
      }}
      >To the content</a
    >
    <${Head} parts=${parts} query=${query} found=${found} />
    ${lost && html`<${Lost} lost=${lost} />`}
    <main id="main" tabindex="-1">
      ${found ? html`<${View} parts=${parts} query=${query} />` : failed && !lost ? html`<${Failure} error=${failed} />` : html`<p class="empty" role="status">${lost ? "" : "Loading…"}</p>`}
    </main>
    <footer>
      <span
        >${found && `duecourse ${found.version}, ${found.place}${found.tenant ? `, tenant ${found.tenant}` : ""}`}</span
      ><span
        >Times in ${ZONE}; UTC on hover. <button type="button" class="link" onClick=${help}>Keys</button> ${found && !found.tenant && html`<${Tenant} parts=${parts} query=${query} />`}${" "}<${Theme}
      /></span>
    </footer>
    <${Dialogs} />`;
}

function Head({ parts, query, found }) {
  const box = useRef(null);
  const [text, setText] = useState(query.q ?? "");
  const search = (event) => {
    event.preventDefault();
    if (text.trim()) go(to(["search"], { q: text.trim() }));
    box.current.blur();
  };
  return html`<header class="masthead">
    <a class="brand" href=${to([])}>duecourse</a>
    <nav aria-label="Views">
      ${VIEWS.map(([view, label]) => html`<a href=${to(view ? [view] : [])} aria-current=${(parts[0] ?? "") === view || (view === "" && parts[0] === "queues") ? "page" : undefined}>${label}</a>`)}
    </nav>
    ${found?.read_only && html`<span class="chip" title="This page shows all and changes nothing.">read only</span>`}
    <form role="search" aria-label="Search by id" onSubmit=${search}>
      <input
        id="search"
        ref=${box}
        type="search"
        value=${text}
        placeholder="Search by id  ( / )"
        aria-label="Search by id"
        spellcheck="false"
        autocomplete="off"
        onInput=${(event) => setText(event.target.value)}
      />
    </form>
  </header>`;
}

function Lost({ lost }) {
  const [, tick] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => tick((n) => n + 1), 1_000);
    return () => clearInterval(timer);
  }, []);
  const left = Math.max(0, lost.next - Date.now());
  return html`<div class="lost" role="alert">
    <strong>No answer since ${when(lost.since, present())}.</strong> ${lost.text} What you see is from before.${" "}
    ${left > 500 ? `The page tries again in ${span(Math.ceil(left / 1000) * 1000)}.` : "Trying…"}${" "}
    <button type="button" onClick=${tryNow}>Try now</button>
  </div>`;
}

const THEMES = [
  ["", "auto"],
  ["light", "light"],
  ["dark", "dark"],
];
const stored = () => {
  try {
    return localStorage.getItem("theme") ?? "";
  } catch {
    return "";
  }
};
const setTheme = (theme) => {
  if (theme) document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
};
setTheme(stored());

/** An operator of many tenants looks at one after the other. */
function Tenant({ parts, query }) {
  const change = (event) => go(to(parts, { ...query, tenant: event.target.value.trim() }));
  return html`<label>Tenant${" "}<input class="tenant" value=${tenant()} placeholder="-" onChange=${change} /></label>`;
}

function Theme() {
  const [theme, choose] = useState(stored());
  const change = (event) => {
    choose(event.target.value);
    setTheme(event.target.value);
    try {
      localStorage.setItem("theme", event.target.value);
    } catch {
      /* it lasts as long as the page */
    }
  };
  return html`<label
    >Colours${" "}
    <select value=${theme} onChange=${change}>
      ${THEMES.map(([key, label]) => html`<option value=${key} selected=${key === theme}>${label}</option>`)}
    </select></label
  >`;
}

const KEYS = [
  ["/", "search by id"],
  ["g then o t d s r q l", "overview, tasks, dead, schedules, reminders, queries, limits"],
  ["j k, arrows", "move in a list of tasks"],
  ["Enter", "open the task"],
  ["x, space", "choose the task"],
  ["?", "these keys"],
  ["Esc", "leave a dialog"],
];
const help = () =>
  ask({
    title: "Keys",
    info: html`<dl class="facts">
      ${KEYS.map(
        ([key, what]) =>
          html`<div>
            <dt><kbd>${key}</kbd></dt>
            <dd>${what}</dd>
          </div>`,
      )}
    </dl>`,
  });

function keys() {
  let before = 0;
  const press = (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest?.("input, textarea, select, dialog"))
      return;
    if (event.key === "/") document.getElementById("search").focus();
    else if (event.key === "?") help();
    else if (event.key === "g") {
      before = Date.now();
      return;
    } else if (Date.now() - before < 1_500 && VIEWS.some(([, , key]) => key === event.key))
      go(to([VIEWS.find(([, , key]) => key === event.key)[0]].filter(Boolean)));
    else if (event.key === "j" && !event.target.closest?.(".rows") && document.querySelector(".rows"))
      document.querySelector(".rows").focus();
    else return;
    before = 0;
    event.preventDefault();
  };
  addEventListener("keydown", press);
  return () => removeEventListener("keydown", press);
}

render(html`<${App} />`, document.getElementById("app"));
