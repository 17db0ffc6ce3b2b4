"""Commands of tasks: `add`, `move`, `tasks`, `why`, `show`, `purge` and `cancel`."""

import json
from typing import Annotated, Literal, NamedTuple

import typer

from ..errors import HarnessError
from . import console, formatting, options
from .api import ApiClient, Document, RequestRejected, given_fields, queue_path, task_path
from .command import Screen, confirm, on_ledger
from .console import Table
from .queues import show_queue

DEFAULTS: Document = {"payload": {}, "queue": options.DEFAULT}
"""Fields of a task that its command gives even where no option does."""


def object_of(option: str, text: str) -> Document:
    """The JSON object of an option, or of a file that is named behind an @. Raises HarnessError, naming the option."""
    try:
        found = json.loads(options.text_from(text))
    except (ValueError, OSError) as error:
        raise HarnessError(f"{option}: must be JSON, or @FILE with JSON in it: {error}") from None
    if not isinstance(found, dict):
        raise HarnessError(f"{option}: must be a JSON object, or @FILE with one")
    return found


def body_of(fields: Document, more: str, default: Document) -> Document:
    """Fields of a command's options and of `--more`; the latter replaces only a `default` value.

    Raises HarnessError, naming the fields that both give.
    """
    further = object_of("--more", more)
    twice = [name for name in further if name in fields and fields[name] != default.get(name)]
    if twice:
        raise HarnessError(f"--more: {', '.join(twice)} must not be given by an option too")
    return fields | further


@on_ledger
def add(  # noqa: PLR0913, PLR0917 - one for each option
    api: ApiClient,
    screen: Screen,
    kind: Annotated[str, typer.Argument(help="Kind of the task.")],
    payload: Annotated[str, typer.Option(help="Payload: a JSON object, or @FILE with one.")] = "{}",
    id: Annotated[str | None, typer.Option("--id", help="Id of the task.", show_default="a random one")] = None,
    queue: options.Queue = options.DEFAULT,
    delay: options.Delay = None,
    due_at: options.DueAt = None,
    more: Annotated[str, typer.Option(help="Further fields of POST /tasks: a JSON object, or @FILE with one.")] = "{}",
) -> None:
    """Add a task.

    Examples:

        duecourse add webhook --payload '{"url": "https://hooks.example.com/orders"}' --delay PT10M --id order-7

        duecourse add report --payload @report.json --more '{"deadline": "PT1H"}'
    """
    given = {"kind": kind, "payload": object_of("--payload", payload), "queue": queue}
    fields = given | given_fields(id=id, delay=delay, due_at=due_at)
    answer = api.request("POST", "/tasks", body=body_of(fields, more, DEFAULTS))
    screen.answer(answer, lambda found: print_task(found["task"], "added" if found["created"] else "existed already"))


@on_ledger
def move(
    api: ApiClient,
    screen: Screen,
    id: options.Id,
    queue: options.Queue = options.DEFAULT,
    delay: options.Delay = None,
    due_at: options.DueAt = None,
    force: options.Force = False,
) -> None:
    """Move a task to a new due time: an instant, or a delay from now.

    Examples:

        duecourse move order-7 --delay PT1H

        duecourse move order-7 --due-at 2026-11-23T09:00:00+01:00
    """
    body = given_fields(delay=delay, due_at=due_at, force=force or None)
    answer = api.request("PATCH", task_path(id), {"queue": queue}, body)
    screen.answer(answer, lambda found: print_task(found["task"], "moved"))


def print_task(task: Document, what: str) -> None:
    """Print what became of one task."""
    due = f"due {formatting.local(task['due_at'])}, {formatting.near(task['due_at'])}"
    console.print_line(f"{task['id']} {what}: {task['state']}, {due}")


Status = Literal["scheduled", "leased", "done", "cancelled", "dead"]
PAGE = 100
OVER = {"done", "dead"}


@on_ledger
def tasks(  # noqa: PLR0913, PLR0917 - one for each option
    api: ApiClient,
    screen: Screen,
    queue: options.Queue = options.DEFAULT,
    state: Annotated[Status | None, typer.Option(help="Filter: tasks in this state.")] = None,
    kind: options.Kind = None,
    group: options.Group = None,
    error: options.Error = None,
    since: options.Since = None,
    limit: Annotated[int, typer.Option(help="Maximum number of tasks.", min=1)] = 20,
    cursor: Annotated[str | None, typer.Option(help="Cursor: the next_cursor of the answer before.")] = None,
) -> None:
    """List the tasks of a queue, by state and time.

    Examples:

        duecourse tasks --state dead --kind report --since PT1H

        duecourse tasks --queue reminders --limit 200 --json
    """
    found: list[Document] = []
    while True:
        page = api.request(
            "GET",
            "/tasks",
            {
                "queue": queue,
                "state": state,
                "kind": kind,
                "group": group,
                "error": error,
                "since": since,
                "cursor": cursor,
                "limit": str(min(PAGE, limit - len(found))),
            },
        )
        found, cursor = found + page["tasks"], page["next_cursor"]
        if cursor is None or len(found) >= limit:
            break
    screen.answer({"tasks": found, "next_cursor": cursor}, _show_tasks)


def _show_tasks(document: Document) -> None:
    table = Table("!id", "state", "kind", "due or over", ">run", "error")
    for one in document["tasks"]:
        error = one.get("error", "")
        table.add_row(
            one["id"],
            formatting.state(one["state"]),
            one["kind"],
            _when(one),
            str(one["run"]),
            options.cut(error),
        )
    console.print_table(table if document["tasks"] else "no such task")
    if document["next_cursor"]:
        console.err.print(f"more tasks follow: --limit, or --cursor {document['next_cursor']}", soft_wrap=True)


def _when(task: Document) -> str:
    """Due time of a task; the end of one that ran and is done or dead."""
    is_over = task["state"] in OVER and task["history"]
    return formatting.near(task["history"][-1]["ended_at"] if is_over else task["due_at"])


@on_ledger
def why(api: ApiClient, screen: Screen, id: options.Id, queue: options.Queue = options.DEFAULT) -> None:
    """Print what happened to a task, and what it waits for.

    Examples:

        duecourse why report-42
    """
    screen.answer(api.request("GET", task_path(id, "/why"), {"queue": queue}), show_why)


def show_why(document: Document) -> None:
    """Print a timeline."""
    table = Table("at", "what happened, oldest first")
    for one in document["timeline"]:
        table.add_row(formatting.local(one["at"]), formatting.text_of(one["text"]))
    table.add_row("now", formatting.text_of(document["waits"]["text"]))
    console.print_table(table)


ABSENT = 404


@on_ledger
def show(
    api: ApiClient,
    screen: Screen,
    id: Annotated[str | None, typer.Argument(help="Id of the task; without an id, show the queue.")] = None,
    queue: options.Queue = options.DEFAULT,
) -> None:
    """Print a task, what happened to it and what it waits for; or a queue with its limits and numbers of tasks.

    Exit code 1 if the task does not exist. With --store there are also the fields that only the ledger has.

    Examples:

        duecourse show report-42

        duecourse show standup:300:0 --queue reminders --store redis://127.0.0.1:6379/0

        duecourse show --queue reminders
    """
    if id is None:
        screen.answer(api.request("GET", queue_path(queue)), lambda found: show_queue(found["queue"]))
        return
    try:
        task = api.request("GET", task_path(id), {"queue": queue})["task"]
        why = api.request("GET", task_path(id, "/why"), {"queue": queue})
    except RequestRejected as error:
        if error.status != ABSENT:
            raise
        console.notice(
            f"no task {id} in queue {queue}, in the {api.name}. "
            "For another ledger, give --store or --url, or --stack of a stack that is up"
        )
        raise typer.Exit(1) from None
    kept = api.hidden_fields(queue, id)
    screen.answer({"task": task, "why": why}, lambda _: _print_details(task, why, dict(kept)))


def _print_details(task: Document, why: Document, kept: dict[str, str]) -> None:
    table = Table("field", "value", show_header=False)
    for name, value in {**task, "history": None, **kept}.items():
        if value not in {None, ""} if isinstance(value, str | None) else True:
            table.add_row(name, formatting.text_of(value))
    console.print_table(table)
    console.out.print()
    show_why(why)


STEP = 1_000
"""Number of tasks of one request: some milliseconds of the store's time in each of its steps."""

Ended = Literal["dead", "done", "cancelled", "scheduled"]
Live = Literal["scheduled", "leased"]


@on_ledger
def purge(  # noqa: PLR0913, PLR0917 - one for each option
    api: ApiClient,
    screen: Screen,
    queue: options.QueueName,
    state: Annotated[Ended, typer.Option(help="State of the tasks. A running task is never purged.")],
    kind: options.Kind = None,
    group: options.Group = None,
    error: options.Error = None,
    older_than: options.OlderThan = None,
    dry_run: options.DryRun = False,
    yes: options.Yes = False,
) -> None:
    """Delete the tasks of one state of a queue, with their history.

    The command counts them, says how many there are, and asks.

    Examples:

        duecourse purge default --state dead --older-than P7D

        duecourse purge default --state done --kind report --dry-run

        duecourse purge imports --state scheduled --yes
    """
    body = given_fields(state=state, kind=kind, group=group, error=error, older_than=older_than)
    _act(api, screen, _Many("purge", "purged", queue, body), dry_run=dry_run, yes=yes)


@on_ledger
def cancel(  # noqa: PLR0913, PLR0917 - one for each option
    api: ApiClient,
    screen: Screen,
    id: Annotated[str | None, typer.Argument(help="Id of one task; a dead one is deleted.")] = None,
    queue: options.Queue = options.DEFAULT,
    group: options.Group = None,
    kind: options.Kind = None,
    error: options.Error = None,
    state: Annotated[Live | None, typer.Option(help="Filter: tasks in this state; leased needs --force.")] = None,
    force: options.Force = False,
    dry_run: options.DryRun = False,
    yes: options.Yes = False,
) -> None:
    """Cancel a task; or tasks of a queue by group, kind or state, which the command counts and asks for before.

    Examples:

        duecourse cancel order-7

        duecourse cancel --queue imports --kind report --dry-run

        duecourse cancel --group standup --queue reminders --force --yes
    """
    if id is not None:
        if group or kind or error or state or dry_run:
            raise HarnessError("give the id of one task, or a filter for many")
        api.request("DELETE", task_path(id), {"queue": queue, "force": "true" if force else None})
        screen.answer(
            {"cancelled": 1, "dry_run": False},
            lambda _: console.print_line(f"{id} cancelled"),
        )
        return
    body = given_fields(group=group, kind=kind, error=error, state=state, force=force or None)
    _act(api, screen, _Many("cancel", "cancelled", queue, body), dry_run=dry_run, yes=yes)


class _Many(NamedTuple):
    """A request about many tasks: its verb, the field of its answer, the queue and the filter."""

    verb: str
    done: str
    queue: str
    body: Document

    @property
    def path(self) -> str:
        return queue_path(self.queue, f"/{self.verb}")

    @property
    def nothing(self) -> str:
        """Text where no task is found: no question is asked then."""
        return formatting.nothing(self.verb, self.queue, self.body)


def _act(api: ApiClient, screen: Screen, what: _Many, *, dry_run: bool, yes: bool) -> None:
    """Count the tasks, ask, then act on them request by request."""
    done, path, body = what.done, what.path, what.body
    count = _act_on_each(api, done, path, {**body, "dry_run": True}, None)
    if not count:
        screen.answer({done: 0, "dry_run": dry_run}, lambda _: _show_nothing(api, what))
        return
    question, instead = (
        f"{formatting.number_of(count, 'task')} of queue {what.queue} will be {done}. Go on?",
        ", or --dry-run to count only",
    )
    if not dry_run and confirm(question, yes=yes, screen=screen, instead=instead):
        count = _act_on_each(api, done, path, body, count)
    elif not dry_run:
        raise typer.Exit(1)
    text = f"{formatting.number_of(count, 'task')} of queue {what.queue} {'would be ' if dry_run else ''}{done}"
    screen.answer({done: count, "dry_run": dry_run}, lambda _: console.print_line(text))


def _show_nothing(api: ApiClient, what: _Many) -> None:
    console.print_line(what.nothing)
    try:
        api.request("GET", queue_path(what.queue))
    except RequestRejected as error:  # a queue without tasks may be forgotten: that is no failure, and may be a slip
        console.notice(str(error))


def _act_on_each(api: ApiClient, done: str, path: str, body: Document, total: int | None) -> int:
    """Number of tasks of all requests; with a total, a bar shows their progress."""
    count: int = 0
    cursor: str | None = None
    with console.bar(disable=total is None) as bar:
        task = bar.add_task(done, total=total)
        while True:
            answer = api.request("POST", path, body={**body, "limit": STEP, **given_fields(cursor=cursor)})
            count, cursor = count + answer[done], answer["next_cursor"]
            bar.update(task, completed=count)
            if cursor is None:
                return count
