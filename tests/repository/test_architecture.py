"""The rules that the tree keeps: who may import whom, what an import may do."""

import ast
import importlib
import json
import os
import re
import subprocess
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Protocol

import pytest

from tests.support.project import FUNCTIONS
from tests.support.source import LAYER, ROOT, Source, sources

pytestmark = pytest.mark.slow

CODE = sources("layers/core", "functions", "local/duecourse_local")
TESTS = sources("tests", "docs")

MAY_IMPORT = {
    "lua_linker": {"ledger"},
    "api": {"app", "base", "errors", "guard", "ledger"},
    "app": {
        "api",
        "base",
        "calls",
        "queries",
        "errors",
        "guard",
        "ledger",
        "open_ledger",
        "queues",
        "reminders",
        "ringing",
        "running",
        "schedules",
        "services",
        "settings",
        "tasks",
    },
    "base": {"errors"},
    "bridge": {"ringing"},
    "bridge.__main__": {
        "base",
        "bridge",
        "errors",
        "ledger",
        "open_ledger",
        "ringing",
        "running",
        "services",
        "settings",
    },
    "calls": {"api", "base", "errors", "guard", "ledger", "tasks", "webhooks"},
    "client": {
        "api",
        "app",
        "base",
        "calls",
        "queries",
        "errors",
        "task_handlers",
        "ledger",
        "queues",
        "reminders",
        "schedules",
        "settings",
        "tasks",
    },
    "errors": set(),
    "functions": {
        "app",
        "base",
        "errors",
        "task_handlers",
        "ledger",
        "ringing",
        "routes",
        "running",
        "tasks",
        "version",
    },
    "guard": {"base", "errors", "ledger", "version"},
    "task_handlers": {"app", "base", "errors", "ledger", "running"},
    "in_place": {"api", "app", "ledger", "routes"},
    "ledger": {"base", "errors"},
    "open_ledger": {"base", "errors", "ledger", "services", "settings"},
    "page": {"api", "client", "errors", "in_place", "ledger", "version"},
    "queries": {"api", "base", "calls", "errors", "guard", "ledger", "tasks"},
    "queues": {"api", "base", "errors", "guard", "ledger", "tasks"},
    "reminders": {"api", "base", "errors", "guard", "ledger", "schedules", "tasks"},
    "ringing": {"api", "app", "base", "errors", "ledger", "running"},
    "routes": {"api", "app", "base", "errors", "queries", "queues", "reminders", "running", "schedules", "tasks"},
    "running": {"api", "base", "errors", "guard", "ledger", "tasks"},
    "schedules": {"api", "base", "errors", "guard", "ledger", "tasks"},
    "services": {"base", "errors", "guard", "ledger", "reminders", "running"},
    "settings": {"api", "base", "errors", "guard", "ledger"},
    "tasks": {"api", "base", "errors", "guard", "ledger"},
    "testing": {
        "app",
        "base",
        "calls",
        "queries",
        "client",
        "errors",
        "guard",
        "task_handlers",
        "ledger",
        "open_ledger",
        "reminders",
        "running",
        "settings",
        "webhooks",
        "worker",
    },
    "version": {"api", "base", "client", "errors", "task_handlers", "ledger"},
    "webhooks": {"errors", "guard"},
    "worker": {"app", "base", "errors", "task_handlers", "ledger", "open_ledger", "ringing", "running", "settings"},
}
"""Which parts of the package each part may import, itself aside. `version` is the package's own front, `duecourse`."""

MAY_USE = {
    "api": {"aws_lambda_powertools", "pydantic", "pydantic_core", "typing_extensions"},
    "calls": {"jmespath"},
    "client": {"pydantic"},
    "guard": {"cryptography", "jmespath", "phonenumbers", "urllib3"},
    "ledger": {"hiredis", "lua_linker", "lupa", "plyvel", "redis", "sortedcontainers", "typing_extensions"},
    "page": {"starlette"},
    "queries": {"aws_lambda_powertools", "pydantic", "typing_extensions"},
    "queues": {"aws_lambda_powertools", "pydantic", "pydantic_core", "typing_extensions"},
    "reminders": {"aws_lambda_powertools", "jinja2", "markupsafe", "pydantic", "typing_extensions"},
    "routes": {"aws_lambda_powertools"},
    "running": {"aws_lambda_powertools", "pydantic", "typing_extensions"},
    "schedules": {"aws_lambda_powertools", "pydantic", "typing_extensions", "tzdata", "yaml"},
    "services": {"boto3", "botocore", "pika", "urllib3"},
    "tasks": {"aws_lambda_powertools", "pydantic", "typing_extensions"},
    "testing": {"pytest"},
    "webhooks": {"standardwebhooks"},
}
"""Which libraries each part may import; a part that is not here has none."""

CATCH_ALLS = {
    "layers/core/duecourse/page/server.py": 1,
    "layers/core/duecourse/ringing/listener.py": 1,
    "layers/core/duecourse/running/batches.py": 2,
    "layers/core/duecourse/running/event_loop.py": 3,
    "layers/core/duecourse/running/run.py": 2,
    "layers/core/duecourse/running/hand_over.py": 1,
    "local/duecourse_local/harness/stack.py": 1,
    "local/duecourse_local/harness/function_threads.py": 1,
}
"""Where any exception at all is stopped: around a handler and a piece of a drain; where a thread hands over its own.

Nobody waits for the thread that listens, so its errors are logged and end its subscription. A handler and a piece of a
drain run on a thread or on the event loop, each in a place of its own. The loop hands the errors of a run to the thread
that waits for it, and goes on after an exit that a handler's own task asks for. A request of the page waits for a
thread of its own."""

LIGHT = (
    "duecourse",
    "duecourse.app",
    "duecourse.client.typed_kinds",
    "duecourse.task_handlers",
    "duecourse.settings",
    "duecourse.webhooks",
)
LIGHT_PARTS = (
    "errors",
    "base",
    "ledger",
    "guard",
    "tasks",
    "running",
    "calls",
    "queries",
    "queues",
    "schedules",
    "reminders",
    "ringing",
    "services",
    "bridge",
)
WEB = ("http", "fast_parse", "routes", "file_text")
"""Modules of those parts that have shapes of pydantic."""
HEAVY = ("boto3", "botocore", "lupa", "pika", "plyvel", "pydantic", "aws_lambda_powertools")


def part_of(module: str) -> str:
    """The part that a module belongs to."""
    top, *rest = module.split(".")
    if top != "duecourse":
        return top
    return "bridge.__main__" if rest == ["bridge", "__main__"] else rest[0] if rest else "version"


def test_a_module_imports_only_what_its_place_allows() -> None:
    imports = [(source, module, line) for source in CODE for module, line in source.imports]
    found = [f"{source.name}:{line} imports {module}" for source, module, line in imports if not may(source, module)]
    assert found == []


def may(source: Source, module: str) -> bool:
    """True if the source's part may import the module."""
    part = part_of(source.module)
    if part_of(module) == part or module.split(".", maxsplit=1)[0] in sys.stdlib_module_names:
        return True
    if module.startswith("duecourse"):
        return part == "duecourse_local" or part_of(module) in MAY_IMPORT[part]
    return (part == "duecourse_local" and not module.startswith("tests")) or _may_use(part, module)


def _may_use(part: str, module: str) -> bool:
    library = module.split(".", maxsplit=1)[0]
    return library in MAY_USE.get(part, set()) or (part == "services" and library.startswith("mypy_boto3_"))


def test_a_module_says_in_one_sentence_what_it_is() -> None:
    first = {source.name: source.text.split("\n", 1)[0] for source in CODE + TESTS}
    sentence = re.compile(r'r?"""[^ ].*[.:](""")?')
    assert {name: line for name, line in first.items() if not sentence.fullmatch(line)} == {}


def test_every_failure_is_stopped_in_few_places() -> None:
    found = Counter(source.name for source in CODE for _ in source.catch_alls)
    assert found == Counter(CATCH_ALLS)


UNSEALED = {
    "layers/core/duecourse/reminders/occurrence_updates.py",
    "layers/core/duecourse/reminders/verbs.py",
}
"""Files whose tasks hold a time alone, and so no credential."""


def test_every_add_of_the_product_seals_the_credentials_in_its_tasks() -> None:
    found = {
        source.name
        for source in sources("layers/core/duecourse")
        for call in ast.walk(source.tree)
        if isinstance(call, ast.Call) and ast.unparse(call.func) in {"ledger.add", "self._ledger.add", "ledger().add"}
        if "seal" not in ast.unparse(call.args[0])
    }
    assert found == UNSEALED


CONTRACTS = (
    "guard.call_credentials",
    "guard.http_types",
    "ledger.bells",
    "ledger.operation_types",
    "ledger.schedule",
    "reminders.send",
    "running.task_event",
)


def ports() -> list[type]:
    modules = [importlib.import_module(f"duecourse.{name}") for name in CONTRACTS]
    kinds = [kind for module in modules for kind in vars(module).values() if getattr(kind, "_is_protocol", False)]
    return sorted({kind for kind in kinds if kind is not Protocol}, key=lambda kind: kind.__qualname__)


@pytest.mark.parametrize("port", ports(), ids=lambda port: port.__name__)
def test_a_port_asks_for_few_methods_those_that_it_takes_over_among_them(port: type) -> None:
    own = {name for kind in port.__mro__[:-1] for name in vars(kind) if not name.startswith("_")}
    assert len(own) <= 15, sorted(own)


@pytest.mark.parametrize("script", sorted(LAYER.rglob("lua/*.lua")), ids=lambda path: path.name)
def test_a_script_begins_with_what_it_is_given_and_what_it_answers(script: os.PathLike[str]) -> None:
    text = LAYER.joinpath(script).read_text()
    header = re.match(r"(--.*\n)+", text)
    assert header, "no header"
    places = [header[0].find(f"\n-- {word}") for word in ("KEYS", "ARGV", "RETURNS")]
    assert -1 not in places, header[0]
    assert all(earlier < later for earlier, later in pairwise(places))


@pytest.mark.parametrize("module", sorted(LAYER.rglob("lua/modules/*.lua")), ids=lambda path: path.name)
def test_a_module_of_scripts_begins_with_one_sentence(module: os.PathLike[str]) -> None:
    assert re.match(r"-- [A-Z]", LAYER.joinpath(module).read_text())


@pytest.mark.parametrize("folder", FUNCTIONS, ids=lambda path: path.name)
def test_a_function_stands_in_one_file(folder: os.PathLike[str]) -> None:
    files = {path.name for path in Path(folder).iterdir() if path.name != "__pycache__"}
    assert files == {"app.py"}


LISTEN = """
import importlib, json, os, sys

class Environment(dict):
    seen = set()
    def __getitem__(self, key): self.seen.add(key); return super().__getitem__(key)
    def get(self, key, default=None): self.seen.add(key); return super().get(key, default)
    def __contains__(self, key): self.seen.add(key); return super().__contains__(key)

opened = []
DIALS = ("socket.connect", "socket.getaddrinfo", "socket.sendto")
sys.addaudithook(lambda event, _: opened.append(event) if event in DIALS else None)
os.environ = Environment(os.environ)
for name in json.loads(sys.argv[1]):
    importlib.import_module(name)
print(json.dumps({"opened": opened, "read": sorted(Environment.seen), "loaded": sorted(sys.modules)}))
"""


def imported(modules: list[str], path: str = "") -> dict[str, list[str]]:
    """What importing the modules in a fresh process opened, read of the environment and loaded."""
    environment = {
        "PYTHONPATH": f"{LAYER}{os.pathsep}{path}",
        "PATH": os.environ["PATH"],
        "DUECOURSE_STORE": "nonsense",
    }
    command = [sys.executable, "-c", LISTEN, json.dumps(modules)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    answer: dict[str, list[str]] = json.loads(done.stdout)
    return answer


def assert_quiet(answer: dict[str, list[str]]) -> None:
    assert answer["opened"] == []
    assert [name for name in answer["read"] if name.startswith("DUECOURSE_")] == []


def test_importing_the_package_opens_nothing_and_reads_no_setting() -> None:
    assert_quiet(imported([source.module for source in sources("layers/core/duecourse")]))


@pytest.mark.parametrize("folder", FUNCTIONS, ids=lambda path: path.name)
def test_importing_a_function_opens_nothing_reads_no_setting_and_leaves_what_is_heavy_alone(
    folder: os.PathLike[str],
) -> None:
    answer = imported(["app"], path=str(folder))
    assert_quiet(answer)
    assert {"boto3", "cryptography", "jinja2", "zoneinfo._zoneinfo"}.isdisjoint(answer["loaded"])


@pytest.mark.parametrize("name", ["on_expired", "poll_tick", "on_undelivered", "send_reminder"])
def test_a_function_that_takes_no_requests_starts_without_pydantic_and_asyncio(name: str) -> None:
    loaded = {module.split(".")[0] for module in imported(["app"], path=str(ROOT / "functions" / name))["loaded"]}
    assert loaded.isdisjoint({"pydantic", "pydantic_core", "asyncio"})


def test_the_api_starts_with_the_routes_of_tasks_alone() -> None:
    loaded = imported(["app"], path=str(ROOT / "functions" / "enqueue_http"))["loaded"]
    parts = {name.split(".")[1] for name in loaded if name.startswith("duecourse.") and name.endswith(".http")}
    assert parts == {"tasks"}
    assert not {"duecourse.reminders.one_off", "duecourse.ringing.tick"}.intersection(loaded)


def test_what_is_heavy_stays_off_the_paths_that_do_not_need_it() -> None:
    package = sources("layers/core/duecourse")
    parts = [source.module for source in package if part_of(source.module) in LIGHT_PARTS]
    light = [module for module in parts if module.rpartition(".")[2] not in WEB]
    loaded = {name.split(".")[0] for name in imported([*LIGHT, *light])["loaded"]}
    assert loaded.isdisjoint(HEAVY)


def test_a_command_that_starts_no_stack_does_without_what_a_stack_is_made_of() -> None:
    loaded = set(imported(["duecourse_local.cli.app"], path=str(ROOT))["loaded"])
    assert loaded.isdisjoint({"boto3", "pika", "lupa", "duecourse_local.harness.stack"})
