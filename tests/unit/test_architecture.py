"""The rules that the tree keeps: who may import whom, what an import may do."""

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

from duecourse.ports.store import Store
from tests.support.project import FUNCTIONS
from tests.support.source import LAYER, ROOT, Source, sources

CODE = sources("layers/core/duecourse", "functions", "local/duecourse_local")
TESTS = sources("tests")

MAY_IMPORT = {
    "errors": set(),
    "domain": {"errors"},
    "ports": {"domain", "errors"},
    "kinds": {"turns", "ports", "domain", "errors", "webhooks"},
    "webhooks": {"domain", "errors"},
    "wire": {"domain", "errors"},
    "settings": {"domain", "errors", "wire"},
    "engine": {"ports", "domain", "errors", "wire"},
    "adapters": {"turns", "ports", "domain", "errors", "version"},
    "ledgers": {"adapters", "ports", "domain", "settings", "errors"},
    "bridge": {"ports", "domain", "metrics", "errors"},
    "bridge.__main__": {"bridge", "ledgers", "adapters", "settings", "metrics", "ports", "domain", "errors"},
    "lazy": set(),
    "turns": {"errors"},
    "metrics": set(),
    "outside": {
        "lazy",
        "turns",
        "ledgers",
        "adapters",
        "engine",
        "kinds",
        "wire",
        "ports",
        "domain",
        "settings",
        "errors",
    },
    "wiring": {
        "lazy",
        "outside",
        "bridge",
        "engine",
        "kinds",
        "wire",
        "ports",
        "domain",
        "settings",
        "errors",
    },
    "process": {"wiring", "settings", "domain"},
    "lingering": {"wiring", "bridge", "ledgers", "metrics", "wire", "domain", "errors"},
    "worker": {
        "process",
        "handler",
        "wiring",
        "ledgers",
        "bridge",
        "engine",
        "ports",
        "wire",
        "settings",
        "domain",
        "errors",
    },
    "client": {
        "client_fields",
        "client_reminders",
        "client_schedules",
        "client_settings",
        "link",
        "process",
        "wiring",
        "engine",
        "wire",
        "ports",
        "domain",
    },
    "async_client": {"client", "client_reminders", "client_schedules", "client_settings", "wire", "domain", "errors"},
    "client_reminders": {"client_fields", "link", "wire", "domain"},
    "client_schedules": {"client_fields", "link", "wire", "domain"},
    "client_fields": {"domain"},
    "shapes": {"wire", "domain", "errors"},
    "typed": {"shapes", "async_client", "client", "client_fields", "handler", "process", "domain", "errors"},
    "client_settings": {"settings", "domain", "errors"},
    "link": {"wiring", "engine", "lazy", "ports", "errors"},
    "handler": {"process", "wiring", "engine", "wire", "ports", "domain", "errors"},
    "routes": {"wiring", "metrics", "wire", "ports", "domain", "errors", "version"},
    "testing": {
        "adapters",
        "client",
        "handler",
        "outside",
        "process",
        "wiring",
        "engine",
        "kinds",
        "ledgers",
        "wire",
        "ports",
        "domain",
        "settings",
        "webhooks",
        "worker",
        "errors",
    },
    "version": {
        "async_client",
        "client",
        "client_reminders",
        "client_schedules",
        "handler",
        "typed",
        "wire",
        "domain",
        "errors",
    },
    "functions": {
        "lingering",
        "routes",
        "engine",
        "handler",
        "process",
        "wiring",
        "metrics",
        "wire",
        "ports",
        "domain",
        "errors",
        "version",
    },
}
"""Which parts of the package each part may import, itself aside. `version` is the package's own front, `duecourse`."""

MAY_USE = {
    "kinds": {"jmespath"},
    "webhooks": {"standardwebhooks"},
    "wire": {"pydantic", "pydantic_core", "typing_extensions", "jmespath", "yaml"},
    "settings": {"pydantic"},
    "shapes": {"pydantic"},
    "domain": {"typing_extensions"},
    "adapters": {
        "redis",
        "hiredis",
        "urllib3",
        "boto3",
        "botocore",
        "lupa",
        "plyvel",
        "sortedcontainers",
        "pika",
        "jinja2",
        "markupsafe",
        "phonenumbers",
        "cryptography",
        "tzdata",
    },
    "routes": {"pydantic", "aws_lambda_powertools"},
    "functions": {"aws_lambda_powertools"},
    "testing": {"pytest"},
}
"""Which libraries each part may import; a part that is not here has none."""

CATCH_ALLS = {
    "layers/core/duecourse/bridge/ears.py": 1,
    "layers/core/duecourse/engine/pieces.py": 1,
    "layers/core/duecourse/engine/run.py": 1,
    "layers/core/duecourse/engine/targets.py": 1,
    "local/duecourse_local/stack/stack.py": 1,
    "local/duecourse_local/threads/pool.py": 1,
}
"""Where any exception at all is stopped: around a handler and a piece of a drain; where a thread hands over its own.

Nobody waits for the thread that listens, so its errors are logged and end its subscription."""

LIGHT = (
    "duecourse",
    "duecourse.handler",
    "duecourse.settings",
    "duecourse.typed",
    "duecourse.webhooks",
    "duecourse.wire.events.invocation",
    "duecourse.wire.events.messages",
    "duecourse.wire.events.rings",
    "duecourse.wire.events.schedule",
    "duecourse.wiring",
)
LIGHT_PARTS = ("errors", "domain", "ports", "kinds", "engine", "adapters", "bridge")
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
    return library in MAY_USE.get(part, set()) or (part == "adapters" and library.startswith("mypy_boto3_"))


def test_a_module_says_in_one_sentence_what_it_is() -> None:
    first = {source.name: source.text.split("\n", 1)[0] for source in CODE + TESTS}
    sentence = re.compile(r'r?"""[^ ].*[.:](""")?')
    assert {name: line for name, line in first.items() if not sentence.fullmatch(line)} == {}


def test_every_failure_is_stopped_in_few_places() -> None:
    found = Counter(source.name for source in CODE for _ in source.catch_alls)
    assert found == Counter(CATCH_ALLS)


def ports() -> list[type]:
    modules = [importlib.import_module(source.module) for source in sources("layers/core/duecourse/ports")]
    kinds = [kind for module in modules for kind in vars(module).values() if getattr(kind, "_is_protocol", False)]
    return sorted({kind for kind in kinds if kind not in {Protocol, Store}}, key=lambda kind: kind.__qualname__)


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
def test_a_function_that_takes_no_requests_starts_without_pydantic(name: str) -> None:
    loaded = {module.split(".")[0] for module in imported(["app"], path=str(ROOT / "functions" / name))["loaded"]}
    assert loaded.isdisjoint({"pydantic", "pydantic_core"})


def test_what_is_heavy_stays_off_the_paths_that_do_not_need_it() -> None:
    package = sources("layers/core/duecourse")
    light = [source.module for source in package if part_of(source.module) in LIGHT_PARTS]
    loaded = {name.split(".")[0] for name in imported([*LIGHT, *light])["loaded"]}
    assert loaded.isdisjoint(HEAVY)


def test_a_command_that_starts_no_stack_does_without_what_a_stack_is_made_of() -> None:
    loaded = set(imported(["duecourse_local.cli.app"], path=str(ROOT))["loaded"])
    assert loaded.isdisjoint({"boto3", "pika", "lupa", "duecourse_local.stack.stack"})
