"""A process with an earlier commit's code of the ledger: it reads a call in each line of JSON, and answers in one.

It runs on that commit's own packages (tests/support/releases.py) and imports nothing of this tree.
"""

import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

LEASE_MS = 30_000


class EarlierLedger:
    """The other end: calls by name, in a child process."""

    def __init__(self, layer: Path, url: str) -> None:
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self._process = subprocess.Popen(
            [sys.executable, __file__, url], env={"PYTHONPATH": str(layer), "PATH": ""}, **pipes
        )

    def __enter__(self) -> "EarlierLedger":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def __call__(self, verb: str, *arguments: Any, **named: Any) -> Any:
        """What a function of `serve` answers."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps([verb, arguments, named]) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        assert "error" not in answer, answer
        return answer["answer"]


class ServedLedger:
    """The verbs, in words of JSON."""

    def __init__(self, url: str) -> None:
        code = importlib.import_module
        self._tasks, self._outcomes = code("duecourse.domain.task"), code("duecourse.domain.outcomes")
        self._leases, self._ports = code("duecourse.ports.leases"), code("duecourse.ports.tasks")
        self._pages, self._shard = code("duecourse.domain.pages"), self._tasks.Shard()
        client = code("duecourse.adapters.redis.connect").connect(url)
        self._ledger = code("duecourse.adapters.redis.store").RedisStore(client, deaths=True)

    def add(self, id: str, payload: str, **fields: Any) -> str:
        """The reply."""
        [answer] = self._ledger.add([self._tasks.NewTask(id, "work", payload, **fields)])
        return str(answer.reply)

    def get(self, id: str) -> dict[str, Any] | None:
        """A task's fields, as far as JSON has them."""
        task = self._ledger.get("default", id)
        shown = task and {name: getattr(task, name) for name in task.__match_args__}
        return shown and {name: value for name, value in shown.items() if isinstance(value, str | int)}

    def claim(self, limit: int) -> dict[str, str]:
        """Tokens by id."""
        return {task.id: task.token for task in self._ledger.claim(self._shard, limit, lease_ms=LEASE_MS).tasks}

    def begin(self, id: str, token: str) -> str:
        """The token of the run."""
        lease = self._leases.Lease(id, token)
        return str(self._ledger.begin(self._shard, [lease], LEASE_MS, [b"8 random"])[0].token)

    def settle(self, id: str, token: str, how: str, tenant: str = "-", **fields: Any) -> str:
        """What became of it."""
        ending = self._outcomes.Ending[how]
        return str(
            self._ledger.settle(self._shard, [self._outcomes.Settlement(id, tenant, token, ending, **fields)])[0]
        )

    def extend(self, id: str, token: str) -> bool:
        """Whether the lease is held."""
        return bool(self._ledger.extend(self._shard, [self._leases.Lease(id, token)], LEASE_MS) != [0])

    def save(self, id: str, token: str, state: str) -> bool:
        """Whether the lease is held."""
        return bool(self._ledger.save(self._shard, self._leases.Lease(id, token), state))

    def move(self, id: str, force: bool) -> str:
        """The reply."""
        return str(self._ledger.move("default", [self._ports.Move(id, delay_ms=60_000, force=force)])[0])

    def cancel(self, id: str, force: bool) -> str:
        """The reply."""
        return str(self._ledger.cancel("default", [id], force=force)[0])

    def replay(self, id: str) -> str:
        """The reply."""
        return str(self._ledger.replay("default", [id])[0])

    def page(self) -> list[str]:
        """Every id."""
        wanted = [self._pages.Wanted(), *(self._pages.Wanted(status=one) for one in ("done", "dead", "cancelled"))]
        return [task.id for one in wanted for task in self._ledger.page("default", one, None, 100).tasks]

    def group(self, name: str) -> list[str]:
        """Its ids."""
        return [task.id for task in self._ledger.group("default", name)]

    def sweep(self, retention_ms: int) -> int:
        """How many were forgotten."""
        return int(self._ledger.sweep(self._shard, retention_ms=retention_ms).pruned)


def serve(url: str) -> None:
    """Answer until the other end is closed."""
    served = ServedLedger(url)
    for line in sys.stdin:
        verb, arguments, named = json.loads(line)
        try:
            answer = {"answer": getattr(served, verb)(*arguments, **named)}
        except Exception as error:  # noqa: BLE001 the caller is told, whatever it is
            answer = {"error": repr(error)}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    serve(sys.argv[1])
