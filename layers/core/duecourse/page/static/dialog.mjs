// Each action says what it will do, asks, and shows its result: in one dialog.
import { Away, Problem, away } from "./api.mjs";
import { html, inLanes, shared, useEffect, useRef, useShared, useState } from "./lib.mjs";
import { reloadAll } from "./live.mjs";
import { Failure } from "./parts.mjs";

const asked = shared(null);

/** Ask for an action.
 *
 * `plan(values)` reads what it would do and answers {text, nothing?, …}; `run(values, {plan, tell, signal})` does it and
 * answers its result as a text. `fields` are [{name, label, type, value, hint, options}], with `field` where the API has another name. With `info` in place of these,
 * the dialog only shows something. */
export const ask = (action) => asked.set({ ...action, key: Math.random() });

export function Dialogs() {
  const action = useShared(asked);
  return action && html`<${Dialog} key=${action.key} action=${action} />`;
}

const SETTLE_MS = 350;

function Dialog({ action }) {
  const node = useRef(null);
  const stop = useRef(null);
  const [values, setValues] = useState(() =>
    Object.fromEntries(
      (action.fields ?? []).map((field) => [field.name, field.value ?? (field.type === "checkbox" ? false : "")]),
    ),
  );
  const [plan, setPlan] = useState(null);
  const [error, setError] = useState(null);
  const [progress, setProgress] = useState(null);
  const [result, setResult] = useState(null);
  const [halted, setHalted] = useState("");
  const [turn, setTurn] = useState(0);
  const text = JSON.stringify(values);
  useEffect(() => {
    node.current.showModal();
  }, []);
  useEffect(() => {
    if (progress || result || action.info) return undefined;
    const abort = new AbortController();
    setPlan(null);
    let timer = setTimeout(
      async () => {
        try {
          const found = await action.plan(values, abort.signal);
          if (!abort.signal.aborted) {
            setPlan(found);
            setError(null);
          }
        } catch (failed) {
          if (abort.signal.aborted) return;
          setError(failed);
          if (failed instanceof Away)
            timer = setTimeout(() => setTurn((n) => n + 1), Math.max(SETTLE_MS, (away.get()?.next ?? 0) - Date.now()));
        }
      },
      plan || error ? SETTLE_MS : 0,
    );
    return () => {
      clearTimeout(timer);
      abort.abort();
    };
  }, [text, turn]);
  const close = () => {
    if (!progress) {
      node.current.close();
      asked.set(null);
    }
  };
  const run = async (event) => {
    event.preventDefault();
    if (result || action.info) return close();
    if (!plan || plan.nothing || progress) return undefined;
    stop.current = new AbortController();
    setProgress({ text: "Under way…" });
    setError(null);
    setHalted("");
    let told = null;
    const tell = (news) => {
      told = news;
      setProgress(news);
    };
    try {
      setResult(await action.run(values, { plan, tell, signal: stop.current.signal }));
    } catch (failed) {
      setError(failed);
      if (told) setHalted(`${told.text}, then it failed: ${failed.message}`);
      // What is left to do is looked at anew.
      if (failed instanceof Away) setTurn((n) => n + 1);
    }
    setProgress(null);
    reloadAll();
    return undefined;
  };
  const cancel = (event) => {
    event.preventDefault();
    close();
  };
  const change = (field) => (event) =>
    setValues({ ...values, [field.name]: field.type === "checkbox" ? event.target.checked : event.target.value });
  return html`<dialog ref=${node} onCancel=${cancel} aria-labelledby="dialog-title">
    <form method="dialog" onSubmit=${run}>
      <h2 id="dialog-title">${action.title}</h2>
      ${action.intro && html`<p class="intro">${action.intro}</p>`}
      ${!result && (action.fields ?? []).map((field) => html`<${Field} key=${field.name} field=${field} value=${values[field.name]} onInput=${change(field)} disabled=${!!progress} problem=${error instanceof Problem && problemOf(field, error)} />`)}
      ${action.info}
      ${
        !result &&
        !progress &&
        !action.info &&
        (plan || !error) &&
        html`<div class="effect" role="status" aria-live="polite">
          ${
            plan
              ? html`<strong>${plan.nothing ? "Nothing to do" : "Effect"}</strong>
                  <div>${plan.text}</div>
                  ${plan.more}`
              : html`<span class="none">Looking at what this would do…</span>`
          }
        </div>`
      }
      ${
        progress &&
        html`<div class="effect" role="status" aria-live="polite">
          ${progress.total ? html`<progress max=${progress.total} value=${progress.done} aria-label="Progress"></progress>` : html`<progress aria-label="Progress"></progress>`}
          <div>${progress.text}</div>
        </div>`
      }
      ${halted && html`<div class="note bad" role="alert">${halted}</div>`}
      ${error && !halted.endsWith(error.message) && html`<${Failure} error=${error} />`}
      ${result && html`<div class="note good" role="status">${result}</div>`}
      ${/* Each button has a key: one that became another within its click would be pressed twice. */ ""}
      <div class="buttons">
        ${
          progress
            ? html`<button key="stop" type="button" disabled=${!action.stops} onClick=${() => stop.current.abort()}>
                Stop
              </button>`
            : result || action.info
              ? html`<button key="close" type="submit" class="main" autofocus>Close</button>`
              : html`<button key="leave" type="button" onClick=${close}>Leave it</button
                  ><button
                    key="confirm"
                    type="submit"
                    class="main ${action.danger ? "danger" : ""}"
                    disabled=${!plan || !!plan.nothing}
                  >
                    ${(plan && plan.confirm) || action.confirm}
                  </button>`
        }
      </div>
    </form>
  </dialog>`;
}

/** What the API says of a field, or of a part of it. */
const problemOf = (field, error) =>
  Object.entries(error.fields).find(([name]) =>
    [name, name.split(".")[0]].some((one) => one === (field.field ?? field.name)),
  )?.[1];

function Field({ field, value, onInput, disabled, problem }) {
  const id = `field-${field.name}`;
  const common = {
    id,
    name: field.name,
    disabled,
    "aria-describedby": `${id}-hint`,
    "aria-invalid": problem ? "true" : undefined,
  };
  const control =
    field.type === "select"
      ? html`<select ...${common} value=${value} onChange=${onInput}>
          ${field.options.map(([key, label]) => html`<option value=${key} selected=${key === value}>${label}</option>`)}
        </select>`
      : field.type === "textarea"
        ? html`<textarea ...${common} rows="6" spellcheck="false" value=${value} onInput=${onInput}></textarea>`
        : field.type === "checkbox"
          ? html`<input ...${common} type="checkbox" checked=${value} onChange=${onInput} />`
          : html`<input
              ...${common}
              type=${field.type ?? "text"}
              placeholder=${field.placeholder}
              spellcheck="false"
              autocomplete="off"
              value=${value}
              onInput=${onInput}
            />`;
  return html`<div class="field ${field.type ?? "text"}">
    <label for=${id}>${field.label}</label>${control}<small id="${id}-hint"
      >${problem ? html`<span class="problem">${problem}</span>` : field.hint}</small
    >
  </div>`;
}

/** Act on each of a list until it is stopped: [number done, failures]. */
export async function each(items, act, { tell, signal }, doing) {
  const failures = [];
  let done = 0;
  await inLanes(
    items,
    async (item) => {
      try {
        await act(item);
        done++;
      } catch (error) {
        if (!(error instanceof Problem)) throw error;
        failures.push(`${item.id}: ${error.message}`);
      }
      tell({
        done: done + failures.length,
        total: items.length,
        text: `${doing} ${done + failures.length} of ${items.length}`,
      });
    },
    signal,
  );
  return [done, failures];
}

/** Wait, or less if the signal comes. */
export const pause = (ms, signal) =>
  new Promise((ready) => {
    const timer = setTimeout(ready, ms);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      ready();
    });
  });
