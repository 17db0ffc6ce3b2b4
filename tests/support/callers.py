"""Callers of the HTTP API, as API Gateway tells them to the function, and the things of a tenant."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from duecourse.api.authorization import Role
from duecourse.ledger.api_query import Query, queue_of
from duecourse.ledger.operation_types import Delivery
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.task import Ending, NewTask, Settlement, Shard, Task
from duecourse_local.harness.aws.account import ACCOUNT
from tests.support.requests import DAILY, MEETING, WEEKLY, Answer

LEASE_MS, LATER_MS = 60_000, 3_600_000
PAYLOAD = '{"url":"https://hooks.example.com/orders"}'


class Caller(NamedTuple):
    """One caller: the tenant of its claim or table, and its roles."""

    tenant: str
    roles: tuple[Role, ...] = (Role.CALLER,)

    @property
    def name(self) -> str:
        """Name of its own, as subject and as IAM role."""
        return "-".join([self.tenant or "none", *self.roles])


def token(who: Caller, **claims: Any) -> dict[str, Any]:
    """`authorizer` of a request with a token: the claims are texts, a list is in brackets."""
    own = {"sub": who.name, "org_id": who.tenant, "duecourse_roles": f"[{' '.join(who.roles)}]"}
    return {"jwt": {"claims": {name: one for name, one in (own | claims).items() if one}, "scopes": None}}


def session(role: str, name: str = "i-0a1b2c3d") -> dict[str, Any]:
    """`authorizer` of a request that a session of an IAM role signed."""
    arn = f"arn:aws:sts::{ACCOUNT}:assumed-role/{role}/{name}"
    return {"iam": {"accessKey": "ASIAEXAMPLE", "accountId": ACCOUNT, "userArn": arn, "userId": f"AROA:{name}"}}


CallAs = Callable[..., Answer]
"""Call of the HTTP API for a caller: `call_as(who, method, path, body=None, query="", **headers)`."""


class Scene(NamedTuple):
    """Ids of a tenant's things, one of each state, in a queue that has nothing else."""

    queue: str
    waiting: str
    dead: str
    running: str
    token: str
    handed: str
    delivery: str
    reminder: str
    query: str
    schedule: str
    series: str

    @property
    def ids(self) -> Iterable[str]:
        """All ids of its tasks."""
        return (self.waiting, self.dead, self.running, self.handed)


UNKNOWN = Scene(
    "nowhere",
    "unknown",
    "unknown",
    "unknown",
    "0" * 28,
    "unknown",
    "0" * 28,
    "unknown",
    f"q-{'0' * 32}@nowhere",
    "unknown",
    "unknown",
)
"""Ids that nobody has."""


def scene(ledger: Ledger, call_as: CallAs, owner: Caller, name: str) -> Scene:
    """Make one of each for a tenant; `name` tells them from those of other scenes."""
    queue = f"q-{name}"
    waiting, dead, running, handed = (f"{what}-{name}" for what in ("waiting", "dead", "running", "handed"))

    def new(id: str, **fields: Any) -> NewTask:
        return NewTask(id, "webhook", PAYLOAD, queue=queue, tenant=owner.tenant, **{"delay_ms": LATER_MS} | fields)

    ledger.add([new(waiting), new(dead), new(running), new(handed, delay_ms=0)])
    [delivered] = ledger.claim(
        Shard(queue), 10, lease_ms=LEASE_MS, deliveries={"webhook": Delivery("lambda:Send", 10, LEASE_MS)}
    ).tasks
    assert delivered.id == handed
    _settle(ledger, _taken(ledger, queue, dead, owner.tenant))
    leased = _taken(ledger, queue, running, owner.tenant)
    asked = Query({"url": f"https://{name}.example.com/", "interval": "PT1H", "until": "`true`"}, 0)
    ledger.add([asked.task(owner.tenant, None, "http")._replace(delay_ms=LATER_MS)])
    assert call_as(owner, "POST", "/reminders", MEETING | {"id": f"standup-{name}"}).status == 201
    assert call_as(owner, "POST", "/schedules", DAILY | {"id": f"daily-{name}", "queue": queue}).status == 201
    assert call_as(owner, "POST", "/reminders", WEEKLY | {"id": f"weekly-{name}"}).status == 201
    ids = (queue, waiting, dead, running, leased.token, handed, delivered.token, f"standup-{name}", asked.id)
    return Scene(*ids, f"daily-{name}", f"weekly-{name}")


def things(ledger: Ledger, of: Scene, tenant: str) -> list[Any]:
    """Everything of a scene as it stands in the ledger."""
    tasks: list[Any] = [ledger.get(of.queue, id, tenant) for id in of.ids]
    others = (
        ledger.get(queue_of(of.query), of.query, tenant),
        ledger.schedule(of.queue, of.schedule, tenant),
        ledger.schedule("reminders", of.series, tenant),
    )
    return [*tasks, *others, ledger.group("reminders", of.reminder, tenant)]


def _taken(ledger: Ledger, queue: str, id: str, tenant: str) -> Task:
    task = ledger.take(queue, id, tenant, lease_ms=LEASE_MS)
    assert task is not None
    return task


def _settle(ledger: Ledger, task: Task) -> None:
    end = Settlement(task.id, task.tenant, task.token, Ending.DROP, detail="no use")
    ledger.settle(ledger.shard_of(task.queue, task.id), [end])
