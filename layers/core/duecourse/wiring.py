"""Construction of the parts from the settings."""

import os
import random
from collections.abc import Callable, Iterable
from importlib.util import find_spec

from duecourse import ledgers
from duecourse import settings as environment
from duecourse.domain.notification import DEAD, ENDED, is_notification
from duecourse.domain.outcomes import Settlement
from duecourse.domain.reminder import Channel
from duecourse.domain.reserved import open_kinds
from duecourse.domain.task import Task
from duecourse.engine.crew import Crew
from duecourse.engine.drain import Drainer, Limits
from duecourse.engine.failures import Failures
from duecourse.engine.idempotency import Idempotency
from duecourse.engine.leases import Leases
from duecourse.engine.notifications import Notifications
from duecourse.engine.queries import Queries
from duecourse.engine.queues import Queues
from duecourse.engine.receive import Receiver
from duecourse.engine.reminders import Reminders
from duecourse.engine.run import Kind, Runner
from duecourse.engine.sweep import Retention, Sweeper
from duecourse.engine.targets import INLINE, Handing, Targets
from duecourse.engine.tasks import Tasks
from duecourse.engine.warmer import Noting, Warmer
from duecourse.engine.watches import Watches
from duecourse.engine.work import Worker
from duecourse.errors import FieldError, InvalidSettings, TemplatesMissing
from duecourse.parts import part
from duecourse.ports.http import HttpCaller
from duecourse.ports.invoker import Invoker
from duecourse.ports.publisher import Publisher
from duecourse.ports.results import Results
from duecourse.ports.sender import Message, Sender
from duecourse.ports.store import Store
from duecourse.ports.writer import Letter, Writer
from duecourse.settings import Settings

ACCEPTED_WITHIN_MS = 5_000
"""Timeout of an invocation's acceptance: well within the margin in which a drain finishes."""


@part
def settings() -> Settings:
    """Settings of the environment."""
    return environment.parse(os.environ)


@part
def store() -> Store:
    """The ledger."""
    return ledgers.logged(ledgers.open_store(settings()), settings())


@part
def results() -> Results | None:
    """Results table, if there is one."""
    if not settings().results_table:
        return None
    if not find_spec("boto3"):
        problem = "needs boto3, which is not installed here: pip install 'duecourse[aws]'"
        raise InvalidSettings([FieldError("DUECOURSE_RESULTS_TABLE", problem)])
    from duecourse.adapters.aws.dynamodb_results import DynamoDbResults

    return DynamoDbResults(settings().results_table, settings().results_retention_ms)


@part
def invoker() -> Invoker:
    """The functions' service."""
    from duecourse.adapters.aws.lambda_invoker import LambdaInvoker

    return LambdaInvoker(ACCEPTED_WITHIN_MS)


@part
def brokers() -> dict[str, Publisher]:
    """The brokers that tasks are handed to, by the word before a target's colon."""
    from duecourse.adapters.amqp.publisher import AmqpPublisher
    from duecourse.adapters.aws.sqs_publisher import SqsPublisher

    return {"sqs": SqsPublisher(), "amqp": AmqpPublisher(settings().amqp)}


@part
def senders() -> dict[str, Sender]:
    """Senders of messages to people, by channel."""
    from duecourse.adapters.aws.ses_sender import SesSender
    from duecourse.adapters.aws.sns_sender import SnsSender

    return {Channel.EMAIL: SesSender(settings().mail_from), Channel.PHONE: SnsSender(settings().sms_from)}


@part
def writer() -> Writer:
    """Renderer of reminders. Raises TemplatesMissing."""
    try:
        from duecourse.adapters.templates.writer import TemplateWriter
    except ModuleNotFoundError as error:
        raise TemplatesMissing from error
    return TemplateWriter().write


def write(letters: Iterable[Letter]) -> list[Message]:
    """Reminders written out, by what is put together only where there is one to write: Jinja2 is heavy."""
    return writer()(letters)


@part
def http() -> HttpCaller:
    """Handler of polls."""
    from duecourse.adapters.http.caller import HttpOut

    return HttpOut(settings().parallel)


@part
def reminder_kind() -> Kind:
    """Handler of reminders."""
    from duecourse.kinds.reminder import ReminderKind

    return ReminderKind(senders(), webhook_kind(), write, store().now)


@part
def webhook_kind() -> Kind:
    """Handler of webhooks."""
    from duecourse.kinds.webhook import Webhook

    return Webhook(http(), settings().http_timeout_ms)


@part
def kinds() -> dict[str, Kind]:
    """The kinds that are worked inline."""
    from duecourse.kinds.poll import Poll

    return {
        "poll": Poll(http(), settings().http_timeout_ms),
        "webhook": webhook_kind(),
        "reminder": reminder_kind(),
        ENDED: lambda task: webhook_kind()(filled(task)),
    }


@part
def notifications() -> Notifications:
    """Completion notifications."""
    from duecourse.wire.http.tasks import show_task

    return Notifications(tasks(), lambda task: {**show_task(task)})


def filled(task: Task) -> Task:
    """A task as its worker gets it: a completion notification with its content."""
    return notifications().filled(task) if is_notification(task.id) else task


@part
def crew() -> Crew:
    """The threads on which tasks run."""
    return Crew(settings().parallel)


def runner(kind_of: Callable[[str], Kind | None]) -> Runner:
    """Runner for the kinds that `kind_of` knows; the ledger is opened only if a result needs its time."""
    return Runner(kind_of, results(), lambda: store().now(), random.Random())


@part
def drainer() -> Drainer:
    """Drainer of shards whose bells rang."""
    handed = settings().targets | ({DEAD: settings().dead_target} if settings().dead_target else {})
    handing = Handing(settings().outstanding, settings().delivery_lease_ms)
    targets = Targets(handed, noting(), brokers(), filled, handing)
    return Drainer(store(), runner(kinds().get), targets, crew(), Limits(settings().lease_ms, settings().margin_ms))


def noting() -> Invoker:
    """The functions' service, by which is noted what is in use, where that is asked for."""
    given = settings()
    return Noting(invoker(), store().warmth(), given.warm_idle_ms) if given.warm_ms else invoker()


@part
def warmer() -> Warmer:
    """Warmer of functions before they are needed."""
    given = settings()
    within_ms = given.warm_ms + given.warm_ms // 2
    return Warmer(store().warmth(), invoker(), given.targets, within_ms=within_ms, idle_ms=given.warm_idle_ms)


@part
def watches() -> Watches:
    """Maker of tasks from watched keys. Raises InvalidSettings for a kind without a target."""
    given = settings()
    known = known_kinds(given)
    strangers = [i for i, one in enumerate(given.watch) if one.kind not in known]
    if strangers:
        problem = f"no target here runs it; known kinds: {', '.join(sorted(known))}"
        raise InvalidSettings([FieldError(f"DUECOURSE_WATCH.{i}.kind", problem) for i in strangers])
    return Watches(store(), given.namespace, given.watch)


@part
def sweeper() -> Sweeper:
    """Sweeper of a tick."""
    retention = Retention(settings().retention_ms, settings().dead_retention_ms)
    return Sweeper(store(), drainer(), retention, settings().margin_ms)


def worker(kind: Kind) -> Worker:
    """Worker of the tasks that were handed to this function, all of its one kind."""
    return Worker(store(), runner(lambda _name: kind), crew())


def receiver(kind: Kind) -> Receiver:
    """Receiver of the tasks that a broker delivered to this function, all of its one kind."""
    return Receiver(runner(lambda _name: kind), crew(), store)


@part
def tasks() -> Tasks:
    """The verbs on tasks."""
    handed = {kind for kind, target in settings().targets.items() if target != INLINE}
    return Tasks(store(), results(), known_kinds(settings()), open_kinds(handed))


def known_kinds(given: Settings) -> set[str]:
    """The kinds that a caller may ask for."""
    return open_kinds([*environment.BUILT_IN, *given.targets])


@part
def idempotency() -> Idempotency:
    """Requests with an Idempotency-Key."""
    return Idempotency(store().idempotency())


@part
def queues() -> Queues:
    """The verbs on queues."""
    return Queues(store())


@part
def queries() -> Queries:
    """The verbs on queries. What a poll needs is loaded by the first that is asked: each client has them, few ask."""

    def call(task: Task, left_ms: int) -> Settlement:
        from duecourse.kinds.poll import Hurried, Poll

        return runner(lambda _name: Poll(Hurried(http(), left_ms), settings().http_timeout_ms)).run(task)

    return Queries(store(), results(), call, settings().query_parallel)


@part
def leases() -> Leases:
    """The verbs on leases, for workers outside, which learn of their tasks from an event and answer over HTTP."""
    return Leases(store(), runner(lambda _name: None), settings().lease_ms)


@part
def failures() -> Failures:
    """Handler of Lambda's records of failed invocations."""
    return Failures(store(), random.Random())


@part
def reminders() -> Reminders:
    """The verbs on reminders."""
    return Reminders(store(), write)
