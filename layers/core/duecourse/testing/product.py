"""The whole product in this process, on a clock that is moved: ledger, engine, kinds and handlers, nothing outside."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from random import Random
from types import MappingProxyType
from typing import Any, Self

from duecourse import ledgers
from duecourse.adapters.embedded.store import EmbeddedStore
from duecourse.adapters.embedded.travel import Journey, TravelClock
from duecourse.client import Client
from duecourse.domain.history import Trigger
from duecourse.domain.outcomes import Settlement, Span
from duecourse.domain.reminder import Channel
from duecourse.domain.task import DEFAULT_TENANT, Json, Shard, Task, dump_json
from duecourse.domain.times import INSTANT, format_instant, parse_duration, parse_instant
from duecourse.kinds.signing import Signing
from duecourse.outside import Parts
from duecourse.ports.idempotency import PRUNE
from duecourse.ports.seals import Wrapping
from duecourse.ports.upkeep import Swept
from duecourse.process import PROCESS
from duecourse.settings import Settings, parse
from duecourse.testing.functions import Functions, NoFunctions
from duecourse.testing.handlers import START, AnyHandler, found
from duecourse.testing.outside import EmailSender, Queues, Reply, Sent, SmsSender, Web
from duecourse.wiring import App
from duecourse.worker.handlers import find_handlers

MEMORY = "memory://"
AT_ONCE = 100
"""Tasks of a shard that are claimed together, where so many are due at the same instant."""
UPKEEP_MS = 3_600_000
"""Time between two sweeps of the ledger, which a tick does each minute in production."""
SWEEP_BEFORE_MS = 900_000
"""Time before the end of an `advance` at which its last sweep but one is made."""
MOST_RUNS = 1_000_000
"""Runs of one `advance`: a handler that asks to come again too soon would not let it end."""
SIGNING_SECRET = "whsec_dGhlIHNlY3JldCBvZiB0aGUgdGVzdCBraXQgIDMyYg=="  # noqa: S105 - known to all, for tests
SEAL_KEY = b"the sealing key of the test kit!"


class TooManyRuns(Exception):
    """One `advance` ran a million tasks, which is most likely a handler that comes again at once, each time."""


class Duecourse:
    """The product under test, for a `with` block: `PROCESS` and so `Client.from_env()` lead here for the while.

    `start` is the instant at which it begins. `environment` are settings (`DUECOURSE_…`), in place of this process's.
    """

    def __init__(self, start: datetime | str = START, environment: Mapping[str, str] = MappingProxyType({})) -> None:
        # Results are in the ledger, which is in memory, whatever else the settings are to try out.
        self._settings = replace(parse(environment), store=MEMORY, results_table="")
        self._clock = TravelClock(parse_instant(start))
        self.sent = Sent()
        self._web = Web(self.sent, self._at)
        self._functions = Functions(lambda: self._app)
        self._store = _memory(self._clock, self._settings)
        self._journey = Journey(self._store, self._clock)
        self._app = App(self._settings, self._made())
        self._runner = self._functions.runner()
        self._upkeep_at = self._clock.now() + UPKEEP_MS
        self._travels = False
        self._using = ExitStack()

    def __enter__(self) -> Self:
        self._using.enter_context(PROCESS.using(self._app))
        return self

    def __exit__(self, *_: object) -> None:
        self._using.close()
        self._journey.close()

    @property
    def now(self) -> datetime:
        """The present instant of the ledger, and of everything in it."""
        return self._at()

    @property
    def client(self) -> Client:
        """Client of the ledger, as `Client.from_env()` is."""
        return Client.from_env()

    @property
    def signing_secret(self) -> str:
        """The secret by which webhooks are signed here."""
        return SIGNING_SECRET

    def add(self, kind: str, payload: Json, **fields: Any) -> Task:
        """Add a task (fields as of `Client.add`) and return it."""
        return self.client.add(kind, payload, **fields).task

    def handle(self, kind: str, handler: AnyHandler) -> None:
        """Run tasks of this kind by this handler: what `@task_handler` made, or a function of a Task."""
        self._functions.add(kind, found(handler))

    def import_handlers(self, *modules: str) -> None:
        """Run the kinds of all handlers in these modules (dotted names), as `duecourse worker --import` does.

        Raises InvalidSettings where a module cannot be imported or has no handler, or a handler names no kind.
        """
        for kind, handler in find_handlers(modules).items():
            self.handle(kind, handler)

    def answers(
        self,
        url: str,
        *,
        status: int = 200,
        json: Json = None,
        headers: Mapping[str, str] = MappingProxyType({}),
        error: str = "",
    ) -> None:
        """Have calls to this URL answered so, or fail with `error`; several answers are given in turn."""
        body = b"" if json is None else dump_json(json).encode()
        self._web.set(url, Reply(status, {name.lower(): one for name, one in headers.items()}, body, error))

    def tasks(self, *, state: str | None = None, kind: str | None = None, queue: str | None = None) -> list[Task]:
        """Every task there is, or those in this state, of this kind, in this queue."""
        client = self.client
        queues = [queue] if queue else [one.name for one in client.list_queues()]
        return [task for name in queues for task in _every(client, queue=name, state=state, kind=kind)]

    def advance(self, to: Span | datetime) -> int:
        """Move the clock by a span (`"30d"`, `"PT5M"`, seconds) or to an instant, and run what falls due by then.

        Schedules fire and tasks run in the order of their due times, each at its own. Returns the number of runs.
        Raises ValueError for an instant that is past, TooManyRuns.
        """
        until, runs = self._until(to), 0
        # After a jump of over a day, the store forgets nothing for ten minutes: one sweep comes before the last.
        bounds = (until - SWEEP_BEFORE_MS, until) if until - self._clock.now() > SWEEP_BEFORE_MS else (until,)
        with self._travelling():
            for bound in bounds:
                while shards := self._journey.next(bound):
                    for shard in shards:
                        runs += self._work(shard)
                    if runs > MOST_RUNS:
                        raise TooManyRuns(f"{runs} runs by {self.now}: does a handler come again at once, each time?")
                    if self._clock.now() >= self._upkeep_at:
                        self._keep_up()
                self._keep_up()
        return runs

    @contextmanager
    def _travelling(self) -> Iterator[None]:
        if self._travels:
            raise RuntimeError("advance() was called by a handler that it runs: time passes between tasks only")
        self._travels = True
        try:
            yield
        finally:
            self._travels = False

    def _until(self, to: Span | datetime) -> int:
        if isinstance(to, datetime) or (isinstance(to, str) and INSTANT.fullmatch(to)):
            until = parse_instant(to)
        else:
            until = self._clock.now() + parse_duration(to)
        if until < self._clock.now():
            raise ValueError(f"{format_instant(until)} is past: it is {format_instant(self._clock.now())} here")
        return until

    def _work(self, shard: Shard) -> int:
        """Claim, run and settle what is due in a shard at this instant, occurrences too; returns the number of runs."""
        runs = 0
        while True:
            claim = self._store.claim(shard, AT_ONCE, lease_ms=self._settings.lease_ms, trigger=Trigger.TIMER)
            if ends := [end for task in claim.tasks for end in self._run(task)]:
                self._store.settle(shard, ends)
            runs += len(claim.tasks)
            if claim.schedules:
                self._app.fire(shard, claim.schedules, claim.now)
            elif not claim.backlog or not (claim.tasks or claim.died):
                return runs

    def _run(self, task: Task) -> Sequence[Settlement]:
        """The end of one run: of a function or a kind of the product's own, or of a message for a broker."""
        target = self._app.targets.of(task)
        if target and not self._functions.has(task.kind):
            return self._app.targets.hand_over(target, [task])
        end = self._runner.run(task)
        self._functions.stop_if_interrupted()
        return [end.with_lateness(task, 0)]

    def _keep_up(self) -> None:
        """Sweep the ledger, as a tick does: what ended long ago is forgotten."""
        given, shards = self._settings, self._store.shards()
        while shards:
            swept = self._store.sweep_all(
                shards, retention_ms=given.retention_ms, dead_retention_ms=given.dead_retention_ms
            )
            pairs = zip(shards, swept, strict=True)
            shards = [shard for shard, one in pairs if isinstance(one, Swept) and one.more]
        idempotency = self._store.idempotency()
        while idempotency.prune() == PRUNE:
            pass
        self._upkeep_at = self._clock.now() + UPKEEP_MS

    def _made(self) -> Parts:
        sent, now = self.sent, self._at
        queues = Queues(sent, now)
        return Parts(
            store=self._store,
            invoker=NoFunctions(),
            brokers={"sqs": queues, "amqp": queues},
            senders={Channel.EMAIL: EmailSender(sent, now), Channel.PHONE: SmsSender(sent, now)},
            caller=self._web,
            asked_kinds=self._functions,
            wrapping=_wrapping(self._settings),
            sign=Signing(lambda: {DEFAULT_TENANT: [SIGNING_SECRET]}),
            rng=Random(0),
        )

    def _at(self) -> datetime:
        return datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=self._clock.now())


def _memory(clock: TravelClock, given: Settings) -> EmbeddedStore:
    store = ledgers.open_store(given, clock=clock)
    assert isinstance(store, EmbeddedStore)  # noqa: S101 - for the type: what MEMORY names
    return store


def _wrapping(given: Settings) -> Wrapping | None:
    """A key that seals credentials, where cryptography is installed."""
    if not find_spec("cryptography"):
        return None
    from duecourse.adapters.sealing.local_key import LocalKey

    return LocalKey(SEAL_KEY, given.namespace)


def _every(client: Client, **wanted: Any) -> Iterator[Task]:
    """Tasks of all pages."""
    cursor = None
    while True:
        page = client.list(cursor=cursor, **wanted)
        yield from page.tasks
        if (cursor := page.next_cursor) is None:
            return
