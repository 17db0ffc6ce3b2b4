"""The pages on Python: their code runs as it is, against a Redis, and they name all that there is."""

import asyncio
import inspect
import re
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import redis

import duecourse
from duecourse import Client, ReminderClient, ScheduleClient
from duecourse.app import PROCESS, App
from duecourse.ledger.operations.ledger import Ledger
from duecourse.settings import BUILT_IN, Settings
from tests.support.ledger import bring
from tests.support.redis_server import RedisServer
from tests.support.source import ROOT

pytestmark = pytest.mark.slow

DOCS = ROOT / "docs"
REFERENCE = DOCS / "reference" / "python.md"
PAGES = [REFERENCE, DOCS / "how-to" / "typed-kinds.md", DOCS / "how-to" / "python.md"]


def code_of(page: Path, url: str) -> str:
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    assert blocks
    return "\n".join(blocks).replace("redis://localhost:6379/0", url)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: f"{page.parent.name}/{page.name}")
def test_the_code_of_a_page_runs_as_it_is(
    page: Path, redis_server: RedisServer, redis_client: redis.Redis, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger = Ledger(redis_client)
    ledger.deployments().write({*BUILT_IN, "report"}, {"report"}, "")
    bring(ledger, "dead", "report-41")
    names: dict[str, Any] = {"__name__": page.stem}
    with closing(App(Settings(store=redis_server.url))) as app, PROCESS.using(app):
        try:
            exec(compile(code_of(page, redis_server.url), page.name, "exec"), names)  # noqa: S102 - our own page
            if "add_report" in names:
                asyncio.run(names["add_report"]())
        finally:
            names["client"].close()
    printed = capsys.readouterr().out
    for line in re.findall(r"print\(.*\)  # ([^…\n]+)", page.read_text()):
        assert re.split(": |'redis", line)[0].strip() in printed, line


def test_the_reference_has_each_verb_with_an_example() -> None:
    text = REFERENCE.read_text()
    code = "\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL))
    for kind, prefix in ((Client, ""), (ReminderClient, "reminders."), (ScheduleClient, "schedules.")):
        verbs = [name for name, one in vars(kind).items() if inspect.isfunction(one) and name[0] != "_"]
        for verb in verbs:
            assert verb == "close" or f"client.{prefix}{verb}(" in code, verb
            assert verb == "close" or f"| `{prefix}{verb}(" in text, verb


def test_the_reference_names_each_public_name_that_callers_get() -> None:
    text = REFERENCE.read_text()
    handlers = {"Again", "AsyncKind", "AsyncReminderClient", "AsyncScheduleClient", "Done", "Drop", "Kind", "Retry"}
    own = handlers | {"ReminderClient", "ScheduleClient", "extend", "save", "task_handler"}
    missing = [name for name in duecourse.__all__ if name not in own and not re.search(rf"\b{name}\b", text)]
    assert missing == []
