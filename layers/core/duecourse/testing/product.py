"""The whole product in this process, on a clock that is moved: ledger, handlers, nothing outside."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from random import Random
from types import MappingProxyType
from typing import Any, NamedTuple, Self

from duecourse import open_ledger
from duecourse.app import PROCESS, App, Parts
from duecourse.base.json_text import Json, dump_json
from duecourse.base.times import INSTANT, format_instant, parse_duration, parse_instant
from duecourse.calls.webhook import Signing
from duecourse.client.client import Client
from duecourse.errors import CallFailed, FieldError, InvalidInput, InvocationRejected
from duecourse.guard.http_types import HttpAnswer, HttpRequest
from duecourse.guard.seals import Wrapping
from duecourse.ledger.embedded.ledger import BellSimulator, EmbeddedLedger, TravelClock
from duecourse.ledger.operation_types import PRUNE, Swept
from duecourse.ledger.reminder import Channel
from duecourse.ledger.task import DEFAULT_TENANT, Outcome, Settlement, Shard, Span, Task, Trigger
from duecourse.reminders.send import Message
from duecourse.running.run import Runner
from duecourse.running.task_event import BrokerMessage as Published
from duecourse.settings import Settings, parse
from duecourse.task_handlers import TaskHandler
from duecourse.testing.handlers import REMAINING_S, START, AnyHandler, handler_of, through_event
from duecourse.webhooks import ID, SIGNATURE
from duecourse.worker.options import find_handlers

# Functions of a user's own as the product under test runs them: at once, one after the other, on the test's thread.


class NoFunctions:
    """An Invoker without a function: what a test wants to run it gives as a handler."""

    def prepare(self) -> None:
        """See Invoker."""

    def invoke(self, function: str, event: Json) -> Json:
        """See Invoker."""
        del event
        raise InvocationRejected(f"this test has no {function}: give its kind a handler by duecourse.handle(…)")

    send = invoke


class Functions:
    """Handlers by kind, each with the App that `app` answers; every other kind is the product's own.

    They are the kinds that may be asked for (duecourse.tasks.kinds.Kinds): one that is added later counts at once.
    """

    def __init__(self, app: Callable[[], App]) -> None:
        self._app = app
        self._handlers: dict[str, TaskHandler] = {}
        self._interrupted: KeyboardInterrupt | None = None

    def add(self, kind: str, handler: TaskHandler) -> None:
        """Run tasks of this kind by this handler from now on."""
        self._handlers[kind] = handler

    def has(self, kind: str) -> bool:
        """True if the kind has a handler."""
        return kind in self._handlers

    def check(self, kind: str, *, shown: bool) -> None:
        """See duecourse.tasks.kinds.Kinds."""
        del shown
        app = self._app()
        if not self.has(kind) and kind not in app.known_kinds:
            raise InvalidInput([FieldError("kind", self._unknown(kind, {*app.known_kinds, *self._handlers}))])

    def check_receiver(self, kind: str, *, shown: bool) -> None:
        """See duecourse.tasks.kinds.Kinds."""
        del shown
        app = self._app()
        if not self.has(kind) and kind not in app.handed_kinds:
            raise InvalidInput(
                [FieldError("notify_done.target", self._unknown(kind, {*app.handed_kinds, *self._handlers}))]
            )

    def _unknown(self, kind: str, known: set[str]) -> str:
        listed = ", ".join(sorted(known)) or "none"
        return f"this test has no handler of {kind!r}, only of: {listed}. Give one by duecourse.handle({kind!r}, …)"

    def runner(self) -> Runner:
        """Runner of every kind."""
        app = self._app()
        return app.runner(lambda kind: self._run if self.has(kind) else app.kinds.get(kind), app.seals.opened)

    def stop_if_interrupted(self) -> None:
        """Raise the Ctrl-C that came while a handler ran: the engine retries whatever a handler raises."""
        interrupted, self._interrupted = self._interrupted, None
        if interrupted:
            raise interrupted

    def _run(self, task: Task) -> Outcome | None:
        app = self._app()
        try:
            return self._handlers[task.kind].run(
                app, through_event(app.with_content(task), lambda: REMAINING_S * 1_000)
            )
        except KeyboardInterrupt as interrupted:
            self._interrupted = interrupted
            raise


# The world outside a product under test: messages and calls are kept, and answers are as the test sets them.

Now = Callable[[], datetime]
NO_ANSWER = "no answer is set for it: set one by duecourse.answers({url!r}, json=…)"


@dataclass(frozen=True, slots=True)
class Email:
    """An e-mail that was sent; `html` is "" where there is none."""

    to: str
    subject: str
    text: str
    html: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Sms:
    """An SMS that was sent."""

    to: str
    text: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A call to the web: its request, and the status of its answer, 0 where none came.

    `auth` is the name of the credential that it would carry, "" for none.
    """

    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes
    auth: str
    status: int
    at: datetime

    @property
    def json(self) -> Json:
        """Body of the request, decoded."""
        return json.loads(self.body)

    @property
    def signature(self) -> str:
        """The header `webhook-signature`, "" where the call has none."""
        return self.headers.get(SIGNATURE, "")


@dataclass(frozen=True, slots=True)
class QueueMessage:
    """A task that was handed to a queue of SQS or RabbitMQ, as its message."""

    queue: str
    body: Json
    at: datetime


@dataclass(slots=True)
class Sent:
    """Everything that left the product, oldest first."""

    emails: list[Email] = field(default_factory=list)
    sms: list[Sms] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    messages: list[QueueMessage] = field(default_factory=list)

    @property
    def webhooks(self) -> list[Call]:
        """Calls that are webhooks: deliveries, completion notifications and reminders, without polls and queries."""
        return [call for call in self.calls if ID in call.headers]

    def clear(self) -> None:
        """Forget all of it."""
        for kept in (self.emails, self.sms, self.calls, self.messages):
            kept.clear()


class CannedAnswer(NamedTuple):
    """Answer that a test sets for a URL; `error` in place of one."""

    status: int = 200
    headers: Mapping[str, str] = MappingProxyType({})
    body: bytes = b""
    error: str = ""


class FakeWeb:
    """An HttpCaller that calls nobody: it keeps each request, and answers as set for the URL.

    Of several answers for a URL each is given once, in order, and the last for good. Without one, a GET fails, since it
    wants an answer, and any other call is answered 200 with no body.
    """

    def __init__(self, sent: Sent, now: Now) -> None:
        self._sent, self._now = sent, now
        self._replies: dict[str, list[CannedAnswer]] = {}

    def set(self, url: str, reply: CannedAnswer) -> None:
        """Answer calls to this URL so, after the answers that are set for it already."""
        self._replies.setdefault(url, []).append(reply)

    def call(self, request: HttpRequest) -> HttpAnswer:
        """See HttpCaller."""
        reply = self._reply(request)
        self._sent.calls.append(
            Call(
                method=request.method,
                url=request.url,
                headers=dict(request.headers),
                body=request.body or b"",
                auth=request.auth.name if request.auth else "",
                status=0 if reply.error else reply.status,
                at=self._now(),
            )
        )
        if reply.error:
            raise CallFailed(f"{request.label} failed: {reply.error}")
        whole = len(reply.body) <= request.max_bytes
        return HttpAnswer(reply.status, reply.headers, reply.body[: request.max_bytes], whole)

    def _reply(self, request: HttpRequest) -> CannedAnswer:
        replies = self._replies.get(request.url)
        if replies is None:
            return CannedAnswer(error=NO_ANSWER.format(url=request.url)) if request.method == "GET" else CannedAnswer()
        return replies.pop(0) if len(replies) > 1 else replies[0]


class EmailSender:
    """A Sender that keeps e-mails."""

    def __init__(self, sent: Sent, now: Now) -> None:
        self._sent, self._now = sent, now

    def send(self, message: Message) -> str:
        """See Sender."""
        self._sent.emails.append(Email(message.to, message.subject, message.text, message.html, self._now()))
        return f"email-{len(self._sent.emails)}"


class SmsSender:
    """A Sender that keeps SMS."""

    def __init__(self, sent: Sent, now: Now) -> None:
        self._sent, self._now = sent, now

    def send(self, message: Message) -> str:
        """See Sender."""
        self._sent.sms.append(Sms(message.to, message.text, self._now()))
        return f"sms-{len(self._sent.sms)}"


class QueuePublisher:
    """A Publisher that keeps messages."""

    def __init__(self, sent: Sent, now: Now) -> None:
        self._sent, self._now = sent, now

    def publish(self, queue: str, messages: Sequence[Published]) -> list[str]:
        """See Publisher."""
        self._sent.messages += [QueueMessage(queue, json.loads(one.body), self._now()) for one in messages]
        return [""] * len(messages)


# The product under test: an App on these parts, its ledger in memory and its clock.

MEMORY = "memory://"
CLAIMED_TOGETHER = 100
"""Tasks of a shard that are claimed together, where so many are due at the same instant."""
UPKEEP_MS = 3_600_000
"""Time between two sweeps of the ledger, which a tick does each minute in production."""
SWEEP_BEFORE_MS = 900_000
"""Time before the end of an `advance` at which its last sweep but one is made."""
MAX_RUNS = 1_000_000
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
        self._web = FakeWeb(self.sent, self._at)
        self._functions = Functions(lambda: self._app)
        self._ledger = _memory(self._clock, self._settings)
        self._journey = BellSimulator(self._ledger, self._clock)
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
        self._functions.add(kind, handler_of(handler))

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
        self._web.set(url, CannedAnswer(status, {name.lower(): one for name, one in headers.items()}, body, error))

    def tasks(self, *, state: str | None = None, kind: str | None = None, queue: str | None = None) -> list[Task]:
        """Every task there is, or those in this state, of this kind, in this queue."""
        client = self.client
        queues = [queue] if queue else [one.name for one in client.list_queues()]
        return [task for name in queues for task in _all_tasks(client, queue=name, state=state, kind=kind)]

    def advance(self, to: Span | datetime) -> int:
        """Move the clock by a span (`"30d"`, `"PT5M"`, seconds) or to an instant, and run what falls due by then.

        Schedules fire and tasks run in the order of their due times, each at its own. Returns the number of runs.
        Raises ValueError for an instant that is past, TooManyRuns.
        """
        until, runs = self._until(to), 0
        # After a jump of over a day, the ledger forgets nothing for ten minutes: one sweep comes before the last.
        bounds = (until - SWEEP_BEFORE_MS, until) if until - self._clock.now() > SWEEP_BEFORE_MS else (until,)
        with self._travelling():
            for bound in bounds:
                while shards := self._journey.next(bound):
                    for shard in shards:
                        runs += self._work(shard)
                    if runs > MAX_RUNS:
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
            claim = self._ledger.claim(shard, CLAIMED_TOGETHER, lease_ms=self._settings.lease_ms, trigger=Trigger.TIMER)
            if ends := [end for task in claim.tasks for end in self._run(task)]:
                self._ledger.settle(shard, ends)
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
        given, shards = self._settings, self._ledger.shards()
        while shards:
            swept = self._ledger.sweep_all(
                shards, retention_ms=given.retention_ms, dead_retention_ms=given.dead_retention_ms
            )
            pairs = zip(shards, swept, strict=True)
            shards = [shard for shard, one in pairs if isinstance(one, Swept) and one.more]
        idempotency = self._ledger.idempotency()
        while idempotency.prune() == PRUNE:
            pass
        self._upkeep_at = self._clock.now() + UPKEEP_MS

    def _made(self) -> Parts:
        sent, now = self.sent, self._at
        queues = QueuePublisher(sent, now)
        return Parts(
            ledger=self._ledger,
            invoker=NoFunctions(),
            brokers={"sqs": queues, "amqp": queues},
            senders={Channel.EMAIL: EmailSender(sent, now), Channel.PHONE: SmsSender(sent, now)},
            caller=self._web,
            allowed_kinds=self._functions,
            wrapping=_wrapping(self._settings),
            sign=Signing(lambda: {DEFAULT_TENANT: [SIGNING_SECRET]}),
            rng=Random(0),
        )

    def _at(self) -> datetime:
        return datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=self._clock.now())


def _memory(clock: TravelClock, given: Settings) -> EmbeddedLedger:
    ledger = open_ledger.open_ledger(given, clock=clock)
    assert isinstance(ledger, EmbeddedLedger)  # noqa: S101 - for the type: what MEMORY names
    return ledger


def _wrapping(given: Settings) -> Wrapping | None:
    """A key that seals credentials, where cryptography is installed."""
    if not find_spec("cryptography"):
        return None
    from duecourse.guard.cipher import LocalKey

    return LocalKey(SEAL_KEY, given.namespace)


def _all_tasks(client: Client, **wanted: Any) -> Iterator[Task]:
    """Tasks of all pages."""
    cursor = None
    while True:
        page = client.list(cursor=cursor, **wanted)
        yield from page.tasks
        if (cursor := page.next_cursor) is None:
            return
