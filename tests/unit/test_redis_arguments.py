"""How many arguments a request to Redis has: some managed services count them."""

import re
from typing import Any

from duecourse.adapters.redis_store import RedisStore
from tests.support.ledger import new
from tests.support.source import ROOT

NOTE = re.compile(r"At most ([\d,]+) arguments a request: add at most (\d+) tasks at a time")


class Counting:
    """A client that counts the words of each command, and answers an add of as many tasks as it was told."""

    def __init__(self, tasks: int) -> None:
        self.most = 0
        self._tasks = tasks

    def smembers(self, _key: str) -> set[bytes]:
        return set()

    def execute_command(self, *words: Any) -> Any:
        self.most = max(self.most, len(words))
        return [0, 0, [1] * self._tasks, []]


def test_as_many_tasks_as_the_readme_says_fit_into_what_elasticache_serverless_takes() -> None:
    [(arguments, tasks)] = NOTE.findall((ROOT / "README.md").read_text())
    client = Counting(int(tasks))
    RedisStore(client).add([new(str(number), tenant=f"t{number}") for number in range(int(tasks))])  # type: ignore[arg-type]
    assert client.most <= int(arguments.replace(",", ""))
    assert client.most > 2_000, "it was asked for all at once"
