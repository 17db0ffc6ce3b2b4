"""Every route of the HTTP API: the role that it needs, a request about a tenant's things, and who gets which answer."""

from collections.abc import Callable
from typing import Any, NamedTuple

from duecourse.api.authorization import Role
from tests.support.callers import Scene
from tests.support.requests import DAILY, MEETING, WEBHOOK


class RouteRequest(NamedTuple):
    """One request: path, body and query."""

    path: str
    body: Any = None
    query: str = ""


class Case(NamedTuple):
    """A route's role, its request, and its status for the things of one's own tenant and of another's.

    A foreign 404 is held against that for an unknown id. No foreign status: the route is about no tenant's things.
    """

    role: Role | None
    ask: Callable[[Scene], RouteRequest]
    own: int
    foreign: int | None = 404


def _task(name: str, more: str = "", body: Any = None) -> Callable[[Scene], RouteRequest]:
    return lambda of: RouteRequest(f"/tasks/{getattr(of, name)}{more}", body, f"queue={of.queue}")


def _lease(name: str, proof: str, verb: str, **fields: Any) -> Callable[[Scene], RouteRequest]:
    return lambda of: _task(name, f"/{verb}", {"token": getattr(of, proof), **fields})(of)


def _schedule(more: str = "", body: Any = None) -> Callable[[Scene], RouteRequest]:
    return lambda of: RouteRequest(f"/schedules/{of.schedule}{more}", body, f"queue={of.queue}")


def _occurrence(body: Any = None) -> Callable[[Scene], RouteRequest]:
    return lambda of: RouteRequest(f"/reminders/{of.series}/occurrences/2099-03-09T08:00:00Z", body)


def _new(of: Scene) -> dict[str, Any]:
    return WEBHOOK | {"id": of.waiting, "queue": of.queue, "on_duplicate": "keep"}


ASKED = {"url": "https://api.example.com/report", "interval": "PT1H", "until": "status == 'ok'"}
CASES = {
    "POST /tasks": Case(Role.CALLER, lambda of: RouteRequest("/tasks", _new(of)), 200, 201),
    "POST /tasks/batch": Case(Role.CALLER, lambda of: RouteRequest("/tasks/batch", {"tasks": [_new(of)]}), 200, 200),
    "GET /tasks": Case(Role.CALLER, lambda of: RouteRequest("/tasks", query=f"queue={of.queue}"), 200, 200),
    "GET /tasks/{id}": Case(Role.CALLER, _task("waiting"), 200),
    "GET /tasks/{id}/why": Case(Role.CALLER, _task("waiting", "/why"), 200),
    "PATCH /tasks/{id}": Case(Role.CALLER, _task("waiting", body={"delay": 60}), 200),
    "DELETE /tasks/{id}": Case(Role.CALLER, _task("waiting"), 204),
    "POST /tasks/{id}/replay": Case(Role.CALLER, _task("dead", "/replay"), 200),
    "POST /tasks/{id}/begin": Case(Role.WORKER, _lease("handed", "delivery", "begin"), 200),
    "POST /tasks/{id}/settle": Case(Role.WORKER, _lease("running", "token", "settle", outcome="done"), 200),
    "POST /tasks/{id}/extend": Case(Role.WORKER, _lease("running", "token", "extend", **{"for": "PT5M"}), 200),
    "POST /tasks/{id}/save": Case(Role.WORKER, _lease("running", "token", "save", state={"page": 7}), 204),
    "POST /reminders": Case(
        Role.CALLER, lambda of: RouteRequest("/reminders", MEETING | {"id": of.reminder}), 200, 201
    ),
    "POST /reminders/preview": Case(
        Role.CALLER, lambda of: RouteRequest("/reminders/preview", {"id": of.reminder}), 200
    ),
    "GET /reminders/{id}": Case(Role.CALLER, lambda of: RouteRequest(f"/reminders/{of.reminder}"), 200),
    "PATCH /reminders/{id}": Case(
        Role.CALLER, lambda of: RouteRequest(f"/reminders/{of.reminder}", {"starts_at": "2099-04-02T08:00:00Z"}), 200
    ),
    "DELETE /reminders/{id}": Case(Role.CALLER, lambda of: RouteRequest(f"/reminders/{of.reminder}"), 204),
    "PATCH /reminders/{id}/occurrences/{at}": Case(
        Role.CALLER, _occurrence({"starts_at": "2099-03-10T08:00:00Z"}), 200
    ),
    "DELETE /reminders/{id}/occurrences/{at}": Case(Role.CALLER, _occurrence(), 204),
    "POST /schedules": Case(
        Role.CALLER, lambda of: RouteRequest("/schedules", DAILY | {"id": of.schedule, "queue": of.queue}), 200, 201
    ),
    "POST /schedules/preview": Case(
        Role.CALLER, lambda _of: RouteRequest("/schedules/preview", {"repeat": DAILY["repeat"]}), 200, None
    ),
    "POST /schedules/purge": Case(
        Role.CALLER, lambda of: RouteRequest("/schedules/purge", {"all": True}, f"queue={of.queue}"), 200, 200
    ),
    "GET /schedules": Case(Role.CALLER, lambda of: RouteRequest("/schedules", query=f"queue={of.queue}"), 200, 200),
    "GET /schedules/{id}": Case(Role.CALLER, _schedule(), 200),
    "PATCH /schedules/{id}": Case(Role.CALLER, _schedule(body={"paused": True}), 200),
    "DELETE /schedules/{id}": Case(Role.CALLER, _schedule(), 204),
    "POST /schedules/{id}/run": Case(Role.CALLER, _schedule("/run"), 201),
    "POST /schedules/{id}/backfill": Case(
        Role.CALLER, _schedule("/backfill", {"from": "2026-03-02T00:00:00Z", "to": "2026-03-03T00:00:00Z"}), 201
    ),
    "POST /queries": Case(Role.CALLER, lambda _of: RouteRequest("/queries", ASKED), 200, 200),
    "GET /queries/{id}": Case(Role.CALLER, lambda of: RouteRequest(f"/queries/{of.query}"), 200),
    "GET /queues": Case(Role.CALLER, lambda _of: RouteRequest("/queues"), 200, 200),
    "GET /queues/{queue}": Case(Role.CALLER, lambda of: RouteRequest(f"/queues/{of.queue}"), 200),
    "PATCH /queues/{queue}": Case(
        Role.OPERATOR, lambda of: RouteRequest(f"/queues/{of.queue}", {"paused": True}), 200, None
    ),
    "GET /queues/{queue}/history": Case(
        Role.OPERATOR, lambda of: RouteRequest(f"/queues/{of.queue}/history"), 200, None
    ),
    "GET /queues/{queue}/dead": Case(Role.CALLER, lambda of: RouteRequest(f"/queues/{of.queue}/dead"), 200, 200),
    "POST /queues/{queue}/dead/replay": Case(
        Role.CALLER, lambda of: RouteRequest(f"/queues/{of.queue}/dead/replay", {}), 200, 200
    ),
    "POST /queues/{queue}/purge": Case(
        Role.CALLER, lambda of: RouteRequest(f"/queues/{of.queue}/purge", {"state": "dead"}), 200, 200
    ),
    "POST /queues/{queue}/cancel": Case(
        Role.CALLER, lambda of: RouteRequest(f"/queues/{of.queue}/cancel", {"state": "scheduled"}), 200, 200
    ),
    "GET /health": Case(None, lambda _of: RouteRequest("/health"), 200, None),
    "GET /openapi.json": Case(None, lambda _of: RouteRequest("/openapi.json"), 200, None),
    "GET /docs": Case(None, lambda _of: RouteRequest("/docs"), 200, None),
}
