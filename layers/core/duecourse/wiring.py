"""Where the parts are put together: each is built at its first use and kept while the process is warm."""

import os
import random
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar, cast

from duecourse import settings as environment
from duecourse.domain.follow_up import DEAD, ENDED, is_follow_up
from duecourse.domain.reminder import KIND as REMINDER
from duecourse.domain.task import Task
from duecourse.engine.crew import Crew
from duecourse.engine.drain import Drained, Drainer, Limits
from duecourse.engine.follow_ups import FollowUps
from duecourse.engine.leases import Leases
from duecourse.engine.queues import Queues
from duecourse.engine.receive import Receiver
from duecourse.engine.reminders import Reminders
from duecourse.engine.run import Kind, Runner
from duecourse.engine.sweep import Sweeper
from duecourse.engine.targets import INLINE, Targets
from duecourse.engine.tasks import Tasks
from duecourse.engine.work import Worker
from duecourse.ledgers import open_bells, open_store
from duecourse.ports.http import HttpCaller
from duecourse.ports.invoker import Invoker
from duecourse.ports.publisher import Publisher
from duecourse.ports.results import Results
from duecourse.ports.sender import Sender
from duecourse.ports.store import Store
from duecourse.settings import Settings
from duecourse.wire.rings import Heard, shards_of

if TYPE_CHECKING:
    from duecourse.bridge.linger import Linger

T = TypeVar("T")

ACCEPTED_WITHIN_MS = 5_000
"""How long an event may take to be accepted: well within the margin in which a drain ends what it has begun."""

_given: dict[str, Any] = {}
_built: list[Callable[[], None]] = []


def configure(**parts: Any) -> None:
    """Use these parts (named as this module's functions) in place of the real ones; forget all that was built."""
    _given.clear()
    _given.update(parts)
    for forget in _built:
        forget()


def part(build: Callable[[], T]) -> Callable[[], T]:
    """A part: the one given, else built once."""
    once = cache(build)
    _built.append(once.cache_clear)

    def take() -> T:
        return cast(T, _given[build.__name__]) if build.__name__ in _given else once()

    return take


@part
def settings() -> Settings:
    """What the environment says."""
    return environment.parse(os.environ)


@part
def store() -> Store:
    """The ledger."""
    return open_store(settings())


@part
def results() -> Results | None:
    """Where results outlive their tasks, if anywhere."""
    if not settings().results_table:
        return None
    from duecourse.adapters.dynamodb_results import DynamoDbResults

    return DynamoDbResults(settings().results_table, settings().results_retention_ms)


@part
def invoker() -> Invoker:
    """The functions' service."""
    from duecourse.adapters.lambda_invoker import LambdaInvoker

    return LambdaInvoker(ACCEPTED_WITHIN_MS)


@part
def brokers() -> dict[str, Publisher]:
    """The brokers that tasks are handed to, by the word before a target's colon."""
    from duecourse.adapters.amqp_publisher import AmqpPublisher
    from duecourse.adapters.sqs_publisher import SqsPublisher

    return {"sqs": SqsPublisher(), "amqp": AmqpPublisher(settings().amqp)}


@part
def sender() -> Sender:
    """The e-mail service."""
    from duecourse.adapters.ses_sender import SesSender

    return SesSender(settings().mail_from)


@part
def http() -> HttpCaller:
    """What calls other people's APIs."""
    from duecourse.adapters.http_out import HttpOut

    return HttpOut(settings().parallel)


@part
def reminder_kind() -> Kind:
    """What a reminder does."""
    from duecourse.kinds.reminder import ReminderKind

    return ReminderKind(sender(), store().now)


@part
def kinds() -> dict[str, Kind]:
    """The kinds that are worked inline."""
    from duecourse.kinds.poll import Poll
    from duecourse.kinds.webhook import Webhook

    timeout_ms = settings().http_timeout_ms
    webhook = Webhook(http(), timeout_ms)
    return {
        "poll": Poll(http(), timeout_ms),
        "webhook": webhook,
        REMINDER: reminder_kind(),
        ENDED: lambda task: webhook(told(task)),
    }


@part
def follow_ups() -> FollowUps:
    """What tells of ended tasks."""
    from duecourse.wire.http import show_task

    return FollowUps(tasks(), lambda task: {**show_task(task)})


def told(task: Task) -> Task:
    """A task as whoever works it gets it: a follow-up with what it tells."""
    return follow_ups().told(task) if is_follow_up(task.id) else task


@part
def crew() -> Crew:
    """The threads on which tasks run."""
    return Crew(settings().parallel)


def runner(kind_of: Callable[[str], Kind | None]) -> Runner:
    """What runs tasks of the kinds that `kind_of` knows; the ledger is opened only where a result wants its time."""
    return Runner(kind_of, results(), lambda: store().now(), random.Random())


@part
def drainer() -> Drainer:
    """What works shards whose bells rang."""
    limits = Limits(settings().lease_ms, settings().margin_ms)
    handed = settings().targets | ({DEAD: settings().dead_target} if settings().dead_target else {})
    targets = Targets(handed, invoker(), brokers(), told)
    return Drainer(store(), runner(kinds().get), targets, crew(), limits)


@part
def sweeper() -> Sweeper:
    """What a tick does."""
    return Sweeper(store(), drainer(), settings().retention_ms, settings().margin_ms)


def linger(remaining_ms: Callable[[], int]) -> "AbstractContextManager[Linger | None]":
    """What serves rings in this invocation for as long as the settings say; None where they say not at all.

    Raises InvalidSettings where the ledger has no bells.
    """
    given = settings()
    if not given.tick_linger_ms:
        return nullcontext()
    from duecourse.bridge.linger import Linger

    return Linger(
        open_bells(given),
        lambda bells, left_ms: _drain(shards_of(bells, given.namespace), left_ms)._asdict(),
        remaining_ms,
        linger_ms=given.tick_linger_ms,
        margin_ms=given.margin_ms,
        in_flight=given.bridge_in_flight,
    )


def _drain(heard: Heard, remaining_ms: Callable[[], int]) -> Drained:
    return drainer().drain(heard.shards, remaining_ms, heard.doors)


def worker(kind: Kind) -> Worker:
    """What works the tasks that were handed to this function, all of its one kind."""
    return Worker(store(), runner(lambda _name: kind), crew(), settings().margin_ms)


def receiver(kind: Kind) -> Receiver:
    """What works the tasks that a broker delivered to this function, all of its one kind."""
    return Receiver(runner(lambda _name: kind), crew(), store)


@part
def tasks() -> Tasks:
    """The verbs on tasks."""
    handed = {kind for kind, target in settings().targets.items() if target != INLINE}
    return Tasks(store(), results(), known_kinds(settings()), handed - {REMINDER})


def known_kinds(given: Settings) -> set[str]:
    """The kinds that a caller may ask for: a reminder's tasks are made with it."""
    return {*environment.BUILT_IN, *given.targets} - {REMINDER}


@part
def queues() -> Queues:
    """The verbs on queues."""
    return Queues(store())


@part
def leases() -> Leases:
    """The verbs on leases, for workers that are told of them and answer from outside."""
    return Leases(store(), runner(lambda _name: None))


@part
def reminders() -> Reminders:
    """The verbs on reminders."""
    return Reminders(store())
