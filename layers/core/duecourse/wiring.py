"""The App: every part of the product, put together from one configuration's settings."""

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from threading import RLock
from typing import TYPE_CHECKING

from duecourse import ledgers
from duecourse.domain.notification import DEAD, ENDED, is_notification
from duecourse.domain.outcomes import Settlement
from duecourse.domain.reminder import KIND as REMINDER
from duecourse.domain.reminder import Channel
from duecourse.domain.task import Task
from duecourse.engine.drain import Drainer, Limits
from duecourse.engine.idempotency import Idempotency
from duecourse.engine.leases import Leases
from duecourse.engine.notifications import with_content
from duecourse.engine.queries import Queries
from duecourse.engine.queues import Queues
from duecourse.engine.reminders import Reminders
from duecourse.engine.run import Kind, Runner
from duecourse.engine.sweep import Retention, Sweeper
from duecourse.engine.targets import INLINE, Targets
from duecourse.engine.tasks import Tasks
from duecourse.engine.threads import Threads
from duecourse.engine.warmer import Noting, Warmer
from duecourse.engine.watches import Watches
from duecourse.engine.work import Worker
from duecourse.errors import FieldError, InvalidSettings, TemplatesMissing
from duecourse.lazy import lazy
from duecourse.ports.http import HttpCaller
from duecourse.ports.invoker import Invoker, Send
from duecourse.ports.publisher import Publisher
from duecourse.ports.results import Results
from duecourse.ports.sender import Message, Sender
from duecourse.ports.store import Store
from duecourse.ports.writer import Letter, Writer
from duecourse.settings import BUILT_IN, Settings

if TYPE_CHECKING:
    from duecourse.bridge.rings import Warming

ACCEPTED_WITHIN_MS = 5_000
"""Timeout of an invocation's acceptance: well within the margin in which a drain finishes."""


@dataclass(frozen=True, kw_only=True)
class Parts:
    """Parts that a test or the harness gives to an App in place of those that the settings name."""

    store: Store | None = None
    results: Results | None = None
    invoker: Invoker | None = None
    brokers: Mapping[str, Publisher] | None = None
    senders: Mapping[str, Sender] | None = None
    writer: Writer | None = None
    http: HttpCaller | None = None
    kinds: Mapping[str, Kind] | None = None


NONE_GIVEN = Parts()


class App:
    """One configuration of duecourse, and its parts: the given ones, and the others as the settings name them."""

    def __init__(self, settings: Settings, given: Parts = NONE_GIVEN) -> None:
        self.settings = settings
        self.building = RLock()  # one for all parts: parts build parts, and two locks could wait for each other
        vars(self).update({name: one for name, one in vars(given).items() if one is not None})

    def close(self) -> None:
        """End the threads on which tasks run, once they are done with what they have."""
        if "threads" in vars(self):
            self.threads.close()

    @lazy
    def store(self) -> Store:
        """The ledger."""
        return ledgers.logged(ledgers.open_store(self.settings), self.settings)

    @lazy
    def results(self) -> Results | None:
        """Results table, if there is one."""
        if not self.settings.results_table:
            return None
        if not find_spec("boto3"):
            problem = "needs boto3, which is not installed here: pip install 'duecourse[aws]'"
            raise InvalidSettings([FieldError("DUECOURSE_RESULTS_TABLE", problem)])
        from duecourse.adapters.aws.dynamodb_results import DynamoDbResults

        return DynamoDbResults(self.settings.results_table, self.settings.results_retention_ms)

    @lazy
    def invoker(self) -> Invoker:
        """The functions' service."""
        from duecourse.adapters.aws.lambda_invoker import LambdaInvoker

        return LambdaInvoker(ACCEPTED_WITHIN_MS)

    @lazy
    def brokers(self) -> dict[str, Publisher]:
        """The brokers that tasks are handed to, by the word before a target's colon."""
        from duecourse.adapters.amqp.publisher import AmqpPublisher
        from duecourse.adapters.aws.sqs_publisher import SqsPublisher

        return {"sqs": SqsPublisher(), "amqp": AmqpPublisher(self.settings.amqp)}

    @lazy
    def senders(self) -> dict[str, Sender]:
        """Senders of messages to people, by channel."""
        from duecourse.adapters.aws.senders import SesSender, SnsSender

        return {Channel.EMAIL: SesSender(self.settings.mail_from), Channel.PHONE: SnsSender(self.settings.sms_from)}

    @lazy
    def writer(self) -> Writer:
        """Renderer of reminders. Raises TemplatesMissing."""
        try:
            from duecourse.adapters.templates.writer import TemplateWriter
        except ModuleNotFoundError as error:
            raise TemplatesMissing from error
        return TemplateWriter().write

    def write(self, letters: Iterable[Letter]) -> list[Message]:
        """Reminders written out, by what is put together only where there is one to write: Jinja2 is heavy."""
        return self.writer(letters)

    @lazy
    def http(self) -> HttpCaller:
        """Handler of polls."""
        from duecourse.adapters.http.caller import HttpOut

        return HttpOut(self.settings.parallel)

    @lazy
    def reminder_kind(self) -> Kind:
        """Handler of reminders."""
        from duecourse.kinds.reminder import ReminderKind

        return ReminderKind(self.senders, self.webhook_kind, self.write, self.store.now)

    @lazy
    def webhook_kind(self) -> Kind:
        """Handler of webhooks."""
        from duecourse.kinds.webhook import Webhook

        return Webhook(self.http, self.settings.http_timeout_ms)

    @lazy
    def kinds(self) -> dict[str, Kind]:
        """The kinds that are worked inline."""
        from duecourse.kinds.poll import Poll

        return {
            "poll": Poll(self.http, self.settings.http_timeout_ms),
            "webhook": self.webhook_kind,
            "reminder": self.reminder_kind,
            ENDED: lambda task: self.webhook_kind(self.filled(task)),
        }

    def filled(self, task: Task) -> Task:
        """A task as its worker gets it: a completion notification with its content."""
        if not is_notification(task.id):
            return task
        from duecourse.wire.http.tasks import show_task

        return with_content(task, self.tasks, lambda ended: {**show_task(ended)})

    @lazy
    def threads(self) -> Threads:
        """The threads on which tasks run."""
        return Threads(self.settings.parallel)

    def now(self) -> int:
        """Time of the ledger (epoch ms)."""
        return self.store.now()

    def runner(self, kind_of: Callable[[str], Kind | None]) -> Runner:
        """Runner for the kinds that `kind_of` knows; the ledger is opened only if a result needs its time."""
        return Runner(kind_of, self.results, self.now, random.Random())

    @lazy
    def drainer(self) -> Drainer:
        """Drainer of shards whose bells rang."""
        handed = self.settings.targets | ({DEAD: self.settings.dead_target} if self.settings.dead_target else {})
        targets = Targets(
            handed,
            self.send(),
            self.brokers,
            self.filled,
            outstanding=self.settings.outstanding,
            delivery_lease_ms=self.settings.delivery_lease_ms,
        )
        limits = Limits(self.settings.lease_ms, self.settings.margin_ms)
        return Drainer(self.store, self.runner(self.kinds.get), targets, self.threads, limits)

    def get_ready(self) -> None:
        """Put together what a drain needs, and ask the ledger to answer. Raises StoreUnavailable."""
        self.store.ping()
        _ = self.drainer

    def send(self) -> Send:
        """Sender of events to functions; it notes their use, where idle ones are warmed."""
        given = self.settings
        if not given.warm_ms:
            return self.invoker.send
        return Noting(self.invoker.send, self.store.warmth(), given.warm_idle_ms).send

    @lazy
    def warmer(self) -> Warmer:
        """Warmer of functions before they are needed."""
        given = self.settings
        within_ms = given.warm_ms + given.warm_ms // 2  # as far as the bells of one event may be (bridge/warmer.py)
        return Warmer(self.store.warmth(), self.invoker, given.targets, within_ms=within_ms, idle_ms=given.warm_idle_ms)

    @lazy
    def warming(self) -> "Warming | None":
        """Warming of functions by a tick that lingers: kept, so that each tick knows what rang in those before it."""
        from duecourse.bridge.rings import Warming
        from duecourse.wire.events.rings import shards_behind

        def warm(bells: Sequence[str]) -> list[str]:
            return self.warmer.warm(shards_behind(bells, self.settings.namespace).shards)

        return Warming(warm, self.settings.warm_ms, self.settings.warm_idle_ms) if self.settings.warm_ms else None

    @lazy
    def watches(self) -> Watches:
        """Maker of tasks from watched keys. Raises InvalidSettings for a kind without a target."""
        given = self.settings
        known = self.known_kinds
        unknown = [i for i, one in enumerate(given.watch) if one.kind not in known]
        if unknown:
            problem = f"no target here runs it; known kinds: {', '.join(sorted(known))}"
            raise InvalidSettings([FieldError(f"DUECOURSE_WATCH.{i}.kind", problem) for i in unknown])
        return Watches(self.store, given.namespace, given.watch)

    @lazy
    def sweeper(self) -> Sweeper:
        """Sweeper of a tick."""
        retention = Retention(self.settings.retention_ms, self.settings.dead_retention_ms)
        return Sweeper(self.store, self.drainer, retention, self.settings.margin_ms)

    def worker(self, kind: Kind, remaining_ms: Callable[[], int]) -> Worker:
        """Worker of the tasks that one invocation handed to this function, all of its one kind."""
        return Worker(self.store, self.runner(lambda _name: kind), self.threads, remaining_ms)

    @lazy
    def tasks(self) -> Tasks:
        """The verbs on tasks."""
        handed = {kind for kind, target in self.settings.targets.items() if target != INLINE}
        return Tasks(self.store, self.results, self.known_kinds, handed - {REMINDER})

    @lazy
    def known_kinds(self) -> set[str]:
        """The kinds that a caller may ask for."""
        return {*BUILT_IN, *self.settings.targets} - {REMINDER}

    @lazy
    def idempotency(self) -> Idempotency:
        """Requests with an Idempotency-Key."""
        return Idempotency(self.store.idempotency())

    @lazy
    def queues(self) -> Queues:
        """The verbs on queues."""
        return Queues(self.store)

    @lazy
    def queries(self) -> Queries:
        """The verbs on queries. The first query loads what a poll needs: each client has the verbs, few ask one."""

        def call(task: Task, left_ms: int) -> Settlement:
            from duecourse.kinds.poll import Hurried, Poll

            return self.runner(lambda _name: Poll(Hurried(self.http, left_ms), self.settings.http_timeout_ms)).run(task)

        return Queries(self.store, self.results, call, self.settings.query_parallel)

    @lazy
    def leases(self) -> Leases:
        """The verbs on leases, for workers outside, which learn of their tasks from an event and answer over HTTP."""
        return Leases(self.store, self.runner(lambda _name: None), self.settings.lease_ms)

    @lazy
    def reminders(self) -> Reminders:
        """The verbs on reminders."""
        return Reminders(self.store, self.write)
