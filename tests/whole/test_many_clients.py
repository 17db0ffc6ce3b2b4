"""A crowd of clients at once: every request is answered, and no task is lost."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
import urllib3

from duecourse_local.harness.options import Options, Precision
from tests.support.emulator import local_stack
from tests.support.matrix import LENGTHY

CLIENTS, REQUESTS = 200, 2_000
PAGE = 100


def listed(http: urllib3.PoolManager, api: str) -> list[str]:
    """The ids of all tasks."""
    ids: list[str] = []
    cursor = ""
    while True:
        page = http.request("GET", f"{api}/tasks?queue=crowd&limit={PAGE}{cursor}").json()
        ids += [task["id"] for task in page["tasks"]]
        if not page["next_cursor"]:
            return ids
        cursor = f"&cursor={page['next_cursor']}"


@LENGTHY
@pytest.mark.parametrize("store", [None, "memory://"], ids=["processes", "threads"])
def test_two_thousand_adds_of_200_clients_at_once_are_all_there(store: str | None) -> None:
    lines: list[tuple[str, str]] = []
    options = Options(store=store, precision=Precision.TICK, tick=0, on_line=lambda *line: lines.append(line))
    with local_stack(options) as stack, urllib3.PoolManager(maxsize=CLIENTS, retries=False) as http:

        def add(number: int) -> int:
            task = {"id": f"t{number}", "queue": "crowd", "kind": "webhook", "delay": "P1D"}
            body = {**task, "payload": {"url": "https://example.com/"}}
            return http.request("POST", f"{stack.api}/tasks", json=body, timeout=120).status

        with ThreadPoolExecutor(CLIENTS) as crowd:
            assert Counter(crowd.map(add, range(REQUESTS))) == {201: REQUESTS}
        assert sorted(listed(http, stack.api)) == sorted(f"t{n}" for n in range(REQUESTS))
    assert [line for name, line in lines if name in ("api", "lambda")] == []
