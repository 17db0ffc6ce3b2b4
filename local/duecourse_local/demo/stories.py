"""The stories: each adds tasks, and reports once they have run."""

import time
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from datetime import time as time_of_day
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from duecourse import Done, Task, task_handler
from duecourse.ledger.connect import connect
from duecourse.testing import Duecourse

from .stage import Stage, check, until

LEAD_S = 5
"""Five minutes in the demo's time: a minute is a second there."""
GUESTS = ("Ada", "Grace", "Edsger")


class Report(NamedTuple):
    """A story as it happened: what was done, and what was seen."""

    title: str
    lines: list[str]


Ending = Callable[[], Report]


def poll(stage: Stage) -> Ending:
    """A third-party API that answers "processing" twice, then "processed"."""
    payload = {"url": f"{stage.services.url}/exports/7", "interval": "PT1S"}
    payload |= {"until": "status == 'processed'", "result": "data"}
    began = time.monotonic()
    stage.call("POST", "/tasks", {"id": "export-7", "kind": "poll", "payload": payload}, expect=201)
    answered_ms = (time.monotonic() - began) * 1000

    def ending() -> Report:
        task = stage.finished("export-7")
        outcomes = [run["outcome"] for run in task["history"]]
        check(outcomes == ["again", "again", "done"], "again, again, done", str(outcomes))
        check(task["result"] == {"rows": 1203}, "the result in GET /tasks/export-7", str(task))
        check(stage.result("export-7") == {"rows": 1203}, "the result in the table", str(stage.result("export-7")))
        return Report(
            "A slow third-party API is polled until it is done",
            [
                f"POST /tasks answered 201 after {answered_ms:.0f} ms; the task continued by itself",
                f"{stage.services.polls} polls: {', '.join(outcomes)}; no attempt spent (attempt {task['attempt']})",
                f"result {task['result']} in DynamoDB and in GET /tasks/export-7",
            ],
        )

    return ending


def meetings(stage: Stage) -> Ending:
    """Reminders five demo minutes before a meeting; a second meeting is moved, a third cancelled."""
    phones = stage.texts() is not None
    _remind(stage, "retrospective", CANCELLED_S, phones=phones)
    stage.call("DELETE", "/reminders/retrospective", expect=204)
    tasks = _remind(stage, "standup", KEPT_S, phones=phones) + _remind(stage, "planning", FAR_S, phones=phones)
    sooner = _in(MOVED_S)  # an earlier time: on a slow machine what is due soon would be sent before it is moved
    moved = stage.call("PATCH", "/reminders/planning", {"starts_at": sooner.isoformat()}, expect=200)
    check(len(moved["tasks"]) == len(GUESTS) + phones, "its reminders moved in one step", str(moved))

    def ending() -> Report:
        for id in tasks:
            stage.finished(id, queue="reminders")
        wanted = sorted((f"{guest.lower()}@example.com", name) for name in ("standup", "planning") for guest in GUESTS)
        sent = until(lambda: _mails(stage) if len(stage.mails()) >= len(wanted) else None, "six e-mails")
        check(sent == wanted, f"e-mails {wanted}", str(sent))
        texts = [mail.text for mail in stage.mails() if mail.subject.endswith("planning")]
        check(all(f"at {sooner:%Y-%m-%dT%H:%M:%S}" in text for text in texts), f"the new time {sooner}", str(texts))
        written = sorted(sms.text for sms in stage.texts() or [])
        expected = [f"planning in {LEAD_S} seconds", f"standup in {LEAD_S} seconds"] if phones else []
        check([text.partition(",")[0] for text in written] == expected, str(expected), str(written))
        return Report(
            f"Meetings in a few seconds, reminders {LEAD_S} s before (a demo minute is a second)",
            [
                "standup: 3 attendees, 3 e-mails in the emulated SES"
                + (", 1 SMS in the emulated SNS" if phones else ""),
                "planning, an hour later: moved by PATCH to an earlier time; 3 e-mails, for the new time only",
                "retrospective: cancelled by DELETE; no e-mail",
            ],
        )

    return ending


KEPT_S, CANCELLED_S, MOVED_S, FAR_S = LEAD_S + 3, LEAD_S + 5, LEAD_S + 5, LEAD_S + 60
"""Seconds until each begins. The moved one ends the story: by then the cancelled one would have sent its reminders."""


def _in(seconds: int) -> datetime:
    return datetime.now(UTC) + timedelta(seconds=seconds)


def _remind(stage: Stage, name: str, seconds: int, *, phones: bool) -> list[str]:
    recipients = [{"name": guest, "email": f"{guest.lower()}@example.com"} for guest in GUESTS]
    recipients[0] |= {"phone": "+436641234567"} if phones else {}
    message = "{{ subject }} in {{ lead }}, {{ recipient.name }}: at {{ starts_at.iso }}"
    body = {"id": name, "subject": name, "message": message, "starts_at": _in(seconds).isoformat()}
    who = {"recipients": recipients, "remind_before": [f"PT{LEAD_S}S"]}
    made = stage.call("POST", "/reminders", {**body, **who}, expect=201)
    return [task["id"] for task in made["tasks"]]


def _mails(stage: Stage) -> list[tuple[str, str]]:
    return sorted((mail.to, mail.subject.rpartition(" ")[2]) for mail in stage.mails())


def webhook(stage: Stage) -> Ending:
    """A webhook whose receiver fails twice."""
    payload = {"url": f"{stage.services.url}/hooks/orders", "body": {"order": 42}}
    retry = {"backoff": "PT0.4S", "jitter": False}
    stage.call("POST", "/tasks", {"id": "order-42", "kind": "webhook", "payload": payload, "retry": retry}, expect=201)

    def ending() -> Report:
        task = stage.finished("order-42")
        seen = stage.services.deliveries["/hooks/orders"]
        statuses = [delivery.status for delivery in seen]
        check(statuses == [503, 503, 200], "503, 503, 200", str(statuses))
        keys = {delivery.webhook_id for delivery in seen}
        check(len(keys) == 1, "one webhook-id", str(keys))
        return Report(
            "A webhook whose receiver fails twice",
            [
                f"answers {', '.join(map(str, statuses))}; waits of 0.4 s and 0.8 s between (backoff)",
                f"delivered once, at attempt {task['attempt']}, with the same webhook-id {keys.pop()} each time",
            ],
        )

    return ending


PARCELS = 6
RAMPS = 2
"""Number of parcels that the receiver takes at a time."""


def batch(stage: Stage) -> Ending:
    """Six webhooks that are added at once, into a queue that may run two."""
    stage.call("PATCH", "/queues/depot", {"max_running": RAMPS, "create": True}, expect=200)
    payload = {"url": f"{stage.services.url}/hooks/depot", "body": {}}
    parcel = {"queue": "depot", "kind": "webhook", "payload": payload}
    ids = [f"parcel-{n}" for n in range(PARCELS)]
    stage.call("POST", "/tasks/batch", {"tasks": [{"id": id, **parcel} for id in ids]}, expect=200)
    receiver = stage.services.blocking_receiver
    until(lambda: receiver.callers >= RAMPS or None, f"{RAMPS} parcels come to the depot")
    waits = stage.call("GET", f"/tasks/{ids[-1]}/why?queue=depot", expect=200)["waits"]
    held = _counts(stage, "depot")
    receiver.released.set()

    def ending() -> Report:
        check(waits["for"] == "max_running", "the last parcel waits for the limit", str(waits))
        check((held["leased"], held["scheduled"]) == (RAMPS, PARCELS - RAMPS), "2 leased, 4 scheduled", str(held))
        until(lambda: _counts(stage, "depot")["done"] == PARCELS or None, f"{PARCELS} parcels are done")
        count = len(stage.services.deliveries["/hooks/depot"])
        check(
            (count, receiver.most_callers) == (PARCELS, RAMPS),
            "each delivered once, two at a time",
            f"{count}, {receiver.most_callers}",
        )
        return Report(
            f"A batch for a receiver that takes {RAMPS} at a time",
            [
                f"POST /tasks/batch added {PARCELS} webhooks, due at once, to a queue with max_running {RAMPS}",
                f"while {RAMPS} ran, {held['scheduled']} waited; GET /tasks/{ids[-1]}/why named {waits['for']}",
                f"all {PARCELS} delivered once, never more than {receiver.most_callers} at a time",
            ],
        )

    return ending


def _counts(stage: Stage, queue: str) -> dict[str, int]:
    counts: dict[str, int] = stage.call("GET", f"/queues/{queue}", expect=200)["queue"]["tasks"]
    return counts


SESSION = "session-{user}"
TTL_MS = 500


def watched(stage: Stage) -> Ending:
    """A plain key with a TTL, as a program sets it that knows nothing of tasks."""
    key = SESSION.format(user="ada")
    with connect(stage.stack.store) as client:
        client.set(key, "anything", px=TTL_MS)

    def ending() -> Report:
        # Redis tells of an expiry when it comes across the key, which may take long where it has many; a look is one.
        with connect(stage.stack.store) as client:
            until(lambda: client.get(key) is None or None, "the key expires")
        seen = stage.services.deliveries["/hooks/sessions"]
        until(lambda: seen or None, "the key's expiry is told")
        bodies = [delivery.body for delivery in seen]
        check(bodies == [{"key": {"user": "ada"}}], "one call with the parts of the key's name", str(bodies))
        return Report(
            "A key of another program expires",
            [
                f"SET {key} anything PX {TTL_MS}; DUECOURSE_WATCH names {SESSION}",
                f"its expiry was heard and became a webhook, delivered once: {bodies[0]}",
            ],
        )

    return ending


def sessions(url: str) -> dict[str, Any]:
    """Entry of `DUECOURSE_WATCH` that posts each expiry to a receiver at `url`."""
    return {"pattern": SESSION, "kind": "webhook", "payload": {"url": f"{url}/hooks/sessions"}}


def ringer_killed(stage: Stage) -> Ending:
    """The bridge or lingering tick is killed (stopped if in threads): the next tick runs a task due meanwhile."""
    how = stage.end_ringer()
    payload = {"url": f"{stage.services.url}/hooks/meanwhile", "body": {}}
    body = {"id": "meanwhile", "kind": "webhook", "payload": payload, "delay": "PT0.5S"}
    stage.call("POST", "/tasks", body, expect=201)

    def ending() -> Report:
        stage.finished("meanwhile")
        count = len(stage.services.deliveries["/hooks/meanwhile"])
        check(count == 1, "one delivery", str(count))
        return Report(
            f"The {how}",
            [
                "a webhook was due half a second later, and nothing heard its bell",
                "the next tick found it in the ledger: delivered once",
            ],
        )

    return ending


ZONE = "Europe/Vienna"
VIENNA = ZoneInfo(ZONE)
FIRST_NIGHT, LAST_NIGHT = date(2027, 1, 3), date(2027, 12, 26)
WEEK = timedelta(days=7)
GAP, FOLD = date(2027, 3, 28), date(2027, 10, 31)
"""Sundays without a 02:30, and with two."""
AFTER_GAP = datetime(2027, 3, 28, 1, tzinfo=UTC)
"""The first instant after the gap."""


def nights() -> Report:
    """A task each Sunday of 2027 at 02:30 in Vienna."""
    ran: list[datetime] = []

    @task_handler
    def close_the_week(task: Task) -> Done:
        ran.append(duecourse.now)
        return Done({"attempt": task.attempt})

    with Duecourse(start=_midnight(FIRST_NIGHT)) as duecourse:
        duecourse.handle("close-the-week", close_the_week)
        duecourse.client.schedules.add(
            id="weekly", kind="close-the-week", payload={}, repeat={"cron": "30 2 * * SUN"}, time_zone=ZONE
        )
        duecourse.advance(_midnight(LAST_NIGHT + timedelta(days=1)))
        states = {one.state for one in duecourse.client.schedules.get("weekly").recent}
    wanted = [_of(night) for night in _nights()]
    check(ran == wanted, "one run each Sunday, at its time", _difference(ran, wanted))
    check(states == {"done"}, "the last ten are done", str(states))
    gap, fold = (_shown(ran[(night - FIRST_NIGHT) // WEEK]) for night in (GAP, FOLD))
    return Report(
        "A schedule through both changes of the clocks",
        [
            f"30 2 * * SUN in {ZONE}: the {len(ran)} Sundays of 2027 on a clock that is moved, one run each",
            f"28 March 2027 has no 02:30: it ran at {gap}; 31 October has two: it ran once, at {fold}",
            "each run was at the time that Python's zoneinfo says; in this process, with no server",
        ],
    )


def _midnight(day: date) -> datetime:
    return datetime.combine(day, time_of_day(), VIENNA)


def _nights() -> list[date]:
    return [FIRST_NIGHT + number * WEEK for number in range((LAST_NIGHT - FIRST_NIGHT) // WEEK + 1)]


def _of(night: date) -> datetime:
    """Instant of a night's run, as Python's own zoneinfo has it: of two, the first; of none, the first after."""
    return AFTER_GAP if night == GAP else datetime.combine(night, time_of_day(2, 30), VIENNA).astimezone(UTC)


def _shown(at: datetime) -> str:
    return f"{at.astimezone(VIENNA):%H:%M %Z} ({at:%H:%M} UTC)"


def _difference(ran: Sequence[datetime], wanted: Sequence[datetime]) -> str:
    more, less = sorted({*ran} - {*wanted}), sorted({*wanted} - {*ran})
    return f"{len(ran)} runs for {len(wanted)} Sundays; besides: {more[:3]}; missing: {less[:3]}"
