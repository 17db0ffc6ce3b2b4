"""The stories; each begins things, and reports once they have happened."""

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from duecourse.adapters.redis.connect import connect

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
    payload = {"url": f"{stage.others.url}/exports/7", "interval": "PT1S"}
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
                f"{stage.others.polls} polls: {', '.join(outcomes)}; no attempt spent (attempt {task['attempt']})",
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
    payload = {"url": f"{stage.others.url}/hooks/orders", "body": {"order": 42}}
    retry = {"backoff": "PT0.4S", "jitter": False}
    stage.call("POST", "/tasks", {"id": "order-42", "kind": "webhook", "payload": payload, "retry": retry}, expect=201)

    def ending() -> Report:
        task = stage.finished("order-42")
        seen = stage.others.deliveries["/hooks/orders"]
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
"""Number of parcels that the depot takes at a time."""


def batch(stage: Stage) -> Ending:
    """Six webhooks that are added at once, into a queue that may run two."""
    stage.call("PATCH", "/queues/depot", {"max_running": RAMPS, "create": True}, expect=200)
    payload = {"url": f"{stage.others.url}/hooks/depot", "body": {}}
    parcel = {"queue": "depot", "kind": "webhook", "payload": payload}
    ids = [f"parcel-{n}" for n in range(PARCELS)]
    stage.call("POST", "/tasks/batch", {"tasks": [{"id": id, **parcel} for id in ids]}, expect=200)
    depot = stage.others.depot
    until(lambda: depot.inside >= RAMPS or None, f"{RAMPS} parcels come to the depot")
    waits = stage.call("GET", f"/tasks/{ids[-1]}/why?queue=depot", expect=200)["waits"]
    held = _counts(stage, "depot")
    depot.opened.set()

    def ending() -> Report:
        check(waits["for"] == "max_running", "the last parcel waits for the limit", str(waits))
        check((held["leased"], held["scheduled"]) == (RAMPS, PARCELS - RAMPS), "2 leased, 4 scheduled", str(held))
        until(lambda: _counts(stage, "depot")["done"] == PARCELS or None, f"{PARCELS} parcels are done")
        count = len(stage.others.deliveries["/hooks/depot"])
        check((count, depot.most) == (PARCELS, RAMPS), "each delivered once, two at a time", f"{count}, {depot.most}")
        return Report(
            f"A batch for a receiver that takes {RAMPS} at a time",
            [
                f"POST /tasks/batch added {PARCELS} webhooks, due at once, to a queue with max_running {RAMPS}",
                f"while {RAMPS} ran, {held['scheduled']} waited; GET /tasks/{ids[-1]}/why named {waits['for']}",
                f"all {PARCELS} delivered once, never more than {depot.most} at a time",
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
        seen = stage.others.deliveries["/hooks/sessions"]
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
    payload = {"url": f"{stage.others.url}/hooks/meanwhile", "body": {}}
    body = {"id": "meanwhile", "kind": "webhook", "payload": payload, "delay": "PT0.5S"}
    stage.call("POST", "/tasks", body, expect=201)

    def ending() -> Report:
        stage.finished("meanwhile")
        count = len(stage.others.deliveries["/hooks/meanwhile"])
        check(count == 1, "one delivery", str(count))
        return Report(
            f"The {how}",
            [
                "a webhook was due half a second later, and nothing heard its bell",
                "the next tick found it in the ledger: delivered once",
            ],
        )

    return ending
