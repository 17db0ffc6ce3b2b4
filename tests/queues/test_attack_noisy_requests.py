"""A tenant that asks without pause beside a victim: its reads and reminders hold up no other's tasks."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import pytest

from tests.queues.test_attack_noisy_neighbour import LATE_S, SETTING_S, Scene, p99, scene, spread
from tests.support.matrix import MATRIX, in_turn

THREADS = 8
TEXT = "x" * 20_000
TASK = {"kind": "webhook", "delay": 86_400, "payload": {"url": "https://hooks.example.com/", "body": TEXT}}
__all__ = ["scene"]

Ask = Callable[[int], tuple[str, str, Any]]


@contextmanager
def asking(scene: Scene, ask: Ask) -> Iterator[list[int]]:
    """The hostile tenant's requests, one after the other from each of its threads; their statuses."""
    statuses: list[int] = []
    stop, numbers = threading.Event(), count()

    def go_on() -> None:
        while not stop.is_set():
            statuses.append(send(scene, *ask(next(numbers))))

    threads = [threading.Thread(target=go_on) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    try:
        yield statuses
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def send(scene: Scene, method: str, path: str, body: Any = None) -> int:
    given = {"json": body} if body is not None else {}
    return scene.http.request(method, scene.stack.api + path, headers={"X-Tenant": "hostile"}, **given).status


def pages(scene: Scene) -> Ask:
    """Pages of a hundred tasks of 20 KB each."""
    for batch in range(10):
        tasks = [TASK | {"id": f"h{batch}-{n}"} for n in range(100)]
        assert send(scene, "POST", "/tasks/batch", {"tasks": tasks}) == 200
    return lambda _: ("GET", "/tasks?limit=100", None)


def reminder(id: str) -> dict[str, Any]:
    """One with a hundred messages."""
    return {
        "id": id, "subject": "x", "message": "y" * 2_000, "remind_before": ["PT5M", "PT1H"],
        "recipients": [{"email": f"p{n}@example.com"} for n in range(50)],
        "starts_at": (datetime.now(UTC) + timedelta(days=2)).isoformat(),
    }  # fmt: skip


def reminders(_: Scene) -> Ask:
    """Each is made, moved and cancelled, with a hundred messages."""
    later = {"starts_at": (datetime.now(UTC) + timedelta(days=3)).isoformat()}

    def ask(number: int) -> tuple[str, str, Any]:
        id, step = f"r{number // 3}", number % 3
        if step == 0:
            return "POST", "/reminders", reminder(id)
        return ("PATCH", f"/reminders/{id}", later) if step == 1 else ("DELETE", f"/reminders/{id}", None)

    return ask


@MATRIX
@pytest.mark.parametrize("hostile", in_turn(pages, reminders))
def test_requests_without_pause_hold_up_no_others_webhooks(scene: Scene, hostile: Callable[[Scene], Ask]) -> None:
    ask = hostile(scene)
    due = spread(scene, datetime.now(UTC) + timedelta(seconds=SETTING_S), 50, 0.1)
    with asking(scene, ask) as statuses:
        latenesses = scene.lateness_s(due)
    assert p99(latenesses) < LATE_S
    assert len(statuses) > THREADS, "it was busy meanwhile"
    assert set(statuses) <= {200, 201, 204, 404, 409}, "a few threads meet at one reminder"
