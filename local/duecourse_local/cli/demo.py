"""`duecourse demo`: plays the stories and prints what happened."""

import json
import time
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from ..demo.fake_services import FakeServices
from ..demo.stage import Lateness, Stage, StoryFailed
from ..harness.addresses import SCHEMES
from ..harness.environment import host_settings
from ..harness.options import PARAMETERS, Options, Precision
from .console import err, out, problems_shown
from .up import SHOWN

if TYPE_CHECKING:
    from ..demo.stories import Report

TICK_S = 5
STARTING = "starting the store, the AWS emulator, the functions, and the bridge or tick …"
PROCESSES = "real Redis, AWS's own runtime client"
THREADS = "no server for the ledger; functions and bridge were threads of this process"


def _rings(precision: Precision) -> Precision:
    if precision == Precision.TICK:
        raise typer.BadParameter("must be linger or bridge: a tick alone is too slow for the stories")
    return precision


By = Annotated[
    Precision, typer.Option(help="Component that serves rings: a lingering tick, or a bridge.", callback=_rings)
]
Store = Annotated[
    str | None, typer.Option(help="URL of the store, which must not contain the demo's tasks yet.", show_default=SHOWN)
]


def demo(precision: By = Precision.BRIDGE, store: Store = None) -> None:
    """Play the stories on a local stack with free ports, and check each; exit code 0 if all checks passed.

    Examples:

        duecourse demo

        duecourse demo --precision linger

        duecourse demo --store memory://

        duecourse demo --store leveldb:///tmp/duecourse-demo
    """
    from ..demo import stories
    from ..harness.redis_server import given_store
    from ..harness.stack import Stack

    began = time.monotonic()
    status = err.status(STARTING)
    status.start()
    try:
        with problems_shown(), FakeServices() as services:
            hears_keys = _hears_keys(precision, given_store(store) or "")
            watch = {"Watch": json.dumps([stories.sessions(services.url)])} if hears_keys else {}
            options = Options(tick=TICK_S, precision=precision, store=store, parameters={**PARAMETERS, **watch})
            with Stack(options) as stack:
                status.update("playing the stories, about 15 s …")
                stage = Stage(stack, services)
                reports = _play(stage, watches=bool(watch))
            status.update("moving a clock through a year …")
            reports.append(stories.nights())
    except StoryFailed as failed:
        status.stop()
        err.print(f"[bold red]A check of the stories failed.[/]\n{escape(str(failed))}")
        raise typer.Exit(1) from None
    finally:
        status.stop()
    out.print(_stories(reports))
    out.print(_lateness(stage.lateness))
    how = THREADS if stack.in_threads else PROCESSES
    out.print(f"All checks passed in {time.monotonic() - began:.0f} s: {how}.")


def _hears_keys(precision: Precision, store: str) -> bool:
    """True if other programs' keys are heard without a gap: ticks that linger for seconds leave one at a cold start."""
    given = {"DUECOURSE_EVENTS": "on", "DUECOURSE_WATCH": "", **host_settings()}
    ours = given["DUECOURSE_EVENTS"] == "on" and not given["DUECOURSE_WATCH"]
    return precision == Precision.BRIDGE and ours and not store.startswith(SCHEMES)


def _play(stage: Stage, *, watches: bool) -> list["Report"]:
    """All but the last beside each other; who rings is ended when they are over."""
    from ..demo import stories

    begins = [stories.poll, stories.meetings, stories.webhook, stories.batch]
    endings = [begin(stage) for begin in [*begins, *([stories.watched] if watches else [])]]
    reports = [ending() for ending in endings]
    return [*reports, stories.ringer_killed(stage)()]


def _stories(reports: list["Report"]) -> Table:
    table = Table("", "story", "what happened", title="duecourse", show_lines=True)
    for number, story in enumerate(reports, 1):
        table.add_row(str(number), escape(story.title), escape("\n".join(story.lines)))
    return table


def _lateness(rows: list[Lateness]) -> Table:
    table = Table("task", "kind", "found by", title="How late each task's last run began")
    table.add_column("runs", justify="right")
    table.add_column("late", justify="right")
    for row in rows:
        table.add_row(row.task, row.kind, row.by, str(row.runs), f"{row.late_ms:,} ms")
    return table
