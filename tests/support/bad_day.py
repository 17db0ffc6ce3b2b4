"""A bad day on the test kit's clock: queues that are paused, full or over a rate, and dead tasks."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import NoReturn

from duecourse import Done, Task
from duecourse.ledger.task import Trigger
from duecourse.testing import Duecourse

MARKUP = "<img src=x onerror=\"window.hacked='yes'\"><b>bold</b>"
"""Text that a page which took it for markup would act on."""
HOUR_MS = 3_600_000
ONCE = {"max_attempts": 1}
EMAIL = {"email": "ada@example.com"}


def report(task: Task) -> Done:
    return Done({"pages": 12, "rows": [{"n": n} for n in range(80)], "text": "long " * 200, "of": task.payload})


def mail(_: Task) -> Done:
    return Done()


def invoice(task: Task) -> NoReturn:
    n = task.payload["n"]
    if n % 3 == 0:
        raise KeyError(f"customer-{n}")
    raise ConnectionError(f"503 of /invoices/{n} {task.payload.get('note', '')}".strip())


@contextmanager
def bad_day(scheduled: int = 20, note: str = MARKUP) -> Iterator[Duecourse]:
    """A ledger at the present instant: `scheduled` tasks are due within two days, `note` is in texts of all kinds."""
    now = datetime.now(UTC)
    with Duecourse(start=now - timedelta(hours=6)) as day:
        for kind, handler in (("report", report), ("mail", mail), ("invoice", invoice)):
            day.handle(kind, handler)
        _queues(day)
        _schedules(day, now)
        day.add("report", {"password": "hunter2", "html": note}, id="report-1")
        day.answers("https://slow.example.com/jobs/7", status=202, json={"state": "working"})
        slow = {"url": "https://slow.example.com/jobs/7", "until": "state == 'done'", "interval": "PT30M"}
        day.add("poll", slow, id="slow-job")
        for n in range(60):
            day.add(
                "invoice",
                {"n": n, "note": note},
                queue="invoices",
                id=f"invoice-{n}",
                delay=timedelta(minutes=n),
                retry=ONCE,
            )
        day.advance(now - timedelta(hours=2))
        for queue in ("mail", "full"):
            day.client.set_queue(queue, paused=True)
        _waiting(day, scheduled)
        _reminders(day, now, note)
        day.advance(now)
        _running(day)
        yield day


def _queues(day: Duecourse) -> None:
    for queue, limits in {
        "invoices": {},
        "mail": {},
        "partner": {"rate": "1/PT1H"},
        "full": {"max_running": 2},
    }.items():
        day.client.set_queue(queue, create=True, **limits)  # type: ignore[arg-type]


def _schedules(day: Duecourse, now: datetime) -> None:
    schedules = day.client.schedules
    vienna = {"time_zone": "Europe/Vienna"}
    payload = {"month": "2026-11"}
    schedules.add(id="nightly", kind="report", payload=payload, repeat={"cron": "30 2 * * *"}, **vienna)
    schedules.add(id="weekdays", kind="mail", payload={}, repeat={"cron": "0 9 * * MON-FRI"}, queue="mail", **vienna)
    schedules.add(id="sync", kind="report", payload={}, repeat={"every": "PT15M"}, queue="partner", overlap="queue")
    schedules.add(id="hourly", kind="mail", payload={}, repeat={"every": "PT1H"}, starts_at=now - timedelta(hours=5))
    schedules.add(
        id="leap", kind="report", payload={}, repeat={"rrule": "FREQ=MONTHLY;BYMONTHDAY=-1;BYHOUR=2"}, **vienna
    )
    schedules.add(id="resting", kind="report", payload={}, repeat={"cron": "@daily"}, paused=True)
    schedules.add(id="doomed", kind="report", payload={}, repeat={"cron": "@daily"})


def _waiting(day: Duecourse, scheduled: int) -> None:
    for n in range(10):
        day.add("mail", {"to": f"user-{n}@example.com"}, queue="mail", id=f"mail-{n}", delay=timedelta(minutes=n))
        day.add("report", {"n": n}, queue="full", id=f"render-{n}", delay="PT1H")
    for first in range(0, scheduled, 1_000):
        day.client.add_many(
            {"kind": "report", "payload": {"n": n}, "id": f"future-{n}", "delay": timedelta(seconds=7_500 + n * 30)}
            for n in range(first, min(first + 1_000, scheduled))
        )


def _reminders(day: Duecourse, now: datetime, note: str) -> None:
    reminders, people = day.client.reminders, [{"name": "Ada", **EMAIL}, {"name": note, "phone": "+436601234567"}]
    meeting = now + timedelta(hours=5)
    reminders.add(id="board", subject=f"Board {note}", starts_at=meeting, remind_before=["PT1H"], recipients=people)
    standup = {"id": "standup", "subject": "Stand-up", "starts_at": meeting, "remind_before": ["PT10M"]}
    reminders.add(**standup, recipients=people[:1], repeat={"every": "P1D"})  # type: ignore[arg-type]


def _running(day: Duecourse) -> None:
    """Tasks that a worker holds: the queue `full` is full."""
    day.client.set_queue("full", paused=False)
    [shard] = [one for one in day._ledger.shards() if one.queue == "full"]
    day._ledger.claim(shard, 2, lease_ms=HOUR_MS, trigger=Trigger.RING)
