"""The App: every part of the product, put together from one configuration's settings; and the Apps of this process."""

import logging
import os
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial, update_wrapper
from importlib.util import find_spec
from random import Random
from threading import RLock
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from duecourse import open_ledger
from duecourse.api.authorization import Access
from duecourse.base.cpu_turns import Turns
from duecourse.base.json_text import Json
from duecourse.base.secret_cache import Secret
from duecourse.errors import (
    FieldError,
    InvalidInput,
    InvalidSettings,
    ResultsUnavailable,
    SealUnavailable,
    TemplatesMissing,
)
from duecourse.guard.call_credentials import AuthenticatingCaller, Credential, Credentials
from duecourse.guard.egress import Egress
from duecourse.guard.http_types import HttpCaller
from duecourse.guard.seals import Seals, Wrapping
from duecourse.ledger.address import servers_of, split
from duecourse.ledger.api_query import limits_of
from duecourse.ledger.bells import BellServers
from duecourse.ledger.operation_types import Results
from duecourse.ledger.queue import QueueChanges
from duecourse.ledger.reminder import KIND as REMINDER
from duecourse.ledger.reminder import SERIES_KIND, Channel
from duecourse.ledger.schedule import StoredSchedule
from duecourse.ledger.task import DEAD, ENDED, Settlement, Shard, Task, Trigger, is_notification
from duecourse.ledger.watched_keys import Watch
from duecourse.queries.verbs import Queries, QueryLimits
from duecourse.queues.verbs import Queues
from duecourse.reminders.send import Letter, Message, ReminderKind, Sender, Write
from duecourse.ringing.warming import UsageRecorder, Warmer, Warming
from duecourse.running.drain import Drainer, Limits
from duecourse.running.hand_over import INLINE, Targets
from duecourse.running.leases import Leases
from duecourse.running.received_tasks import ReceivedTasks
from duecourse.running.run import AsyncKind, Elsewhere, Kind, Runner, RunTimes
from duecourse.running.task_event import Invoker, Publisher, Send
from duecourse.running.threads import Threads
from duecourse.schedules.firing import Firer
from duecourse.schedules.verbs import Schedules
from duecourse.settings import BUILT_IN, Settings, check_broker, parse
from duecourse.tasks.kinds import DeploymentReader, Kinds, LedgerKinds, OwnKinds
from duecourse.tasks.verbs import BulkActions, Tasks, Watches, with_content
from duecourse.tasks.waiting import CompletionWaiter, CompletionWatcher

if TYPE_CHECKING:
    from duecourse.calls.webhook import Sign
    from duecourse.guard.cipher import AesGcm
    from duecourse.guard.sms_numbers import Numbers
    from duecourse.ledger.operations.ledger import Ledger
    from duecourse.reminders.occurrence_updates import Occurrences
    from duecourse.reminders.one_off import OneOffReminders
    from duecourse.reminders.verbs import Reminders
    from duecourse.ringing.tick import ShardDrainer, Sweeper
    from duecourse.schedules.calendar import Calendar
    from duecourse.schedules.file import ScheduleFiles
    from duecourse.schedules.tzdata_update import TzdataUpdater

# Parts of an App that use the outside world: the ledger, functions, brokers, senders, the web and keys.

NO_CIPHER = (
    "sealing credentials needs cryptography: add the seals layer to the function, or pip install duecourse[seals]"
)
ACCEPTED_WITHIN_MS = 5_000
"""Timeout of an invocation's acceptance: well within the margin in which a drain finishes."""


T = TypeVar("T")


class lazy(Generic[T]):  # noqa: N801 - a decorator, as `property` is
    """An attribute built at its first use, and kept; only one thread builds it.

    `functools.cached_property` would not do: two threads at once build two, of a ledger in memory, say.
    """

    def __init__(self, build: Callable[[Any], T]) -> None:
        self._build = build

    def __get__(self, owner: Any, _class: type) -> T:
        # Without a __set__, Python looks into the object itself first: this runs only until the value is kept there.
        name, kept = self._build.__name__, vars(owner)
        with owner.building:
            if name not in kept:
                kept[name] = self._build(owner)
            return cast(T, kept[name])


@dataclass(frozen=True, kw_only=True)
class Parts:
    """Parts that a test or the harness gives to an App in place of those that the settings name."""

    ledger: "Ledger | None" = None
    results: Results | None = None
    invoker: Invoker | None = None
    brokers: Mapping[str, Publisher] | None = None
    senders: Mapping[str, Sender] | None = None
    writer: Write | None = None
    http: HttpCaller | None = None
    credentials: Credentials | None = None
    kinds: Mapping[str, Kind] | None = None
    wrapping: Wrapping | None = None
    caller: HttpCaller | None = None
    sign: "Sign | None" = None
    rng: Random | None = None
    allowed_kinds: Kinds | None = None


NONE_GIVEN = Parts()


class ExternalParts:
    """Parts of an App that use the outside world: the given ones, else those that the settings name."""

    def __init__(self, settings: Settings, given: Parts = NONE_GIVEN) -> None:
        self.settings = settings
        self.building = RLock()  # one for all parts: parts build parts, and two locks could wait for each other
        self.given = {name: one for name, one in vars(given).items() if one is not None}
        vars(self).update(self.given)

    @lazy
    def calendar(self) -> "Calendar":
        """Times of schedules; opened where one is computed, for it takes a while to load."""
        from duecourse.schedules.calendar import Calendar

        return Calendar()

    @lazy
    def ledger(self) -> "Ledger":
        """The ledger."""
        return open_ledger.logged(open_ledger.open_ledger(self.settings, self.place), self.settings)

    @lazy
    def place(self) -> open_ledger.StoreLocation:
        """Place of the ledger: read once where a secret names it, for the ledger and for the bells."""
        return open_ledger.location_of(self.settings)

    def open_bells(self) -> BellServers:
        """Bells of the ledger, for one bridge. Raises InvalidSettings where it has none."""
        return open_ledger.open_bells(self.settings, self.place)

    @lazy
    def seals(self) -> Seals:
        """Seals of credentials in tasks."""
        has_key = "wrapping" in vars(self) or self.settings.seal_key
        wrapping = (lambda: self.wrapping) if has_key else None
        # A ledger is opened, and cryptography is loaded, at the first seal.
        return Seals(self.settings.namespace, lambda: self.ledger.seal_keys(), wrapping, _aes_gcm)  # noqa: PLW0108

    @lazy
    def wrapping(self) -> Wrapping:
        """Key that wraps data keys. Raises SealUnavailable, and InvalidSettings for a file without a key."""
        key = self.settings.seal_key
        if not key.startswith("file://"):
            from duecourse.services.aws import KmsKey

            return KmsKey(key, self.settings.namespace)
        with _cryptography():
            from duecourse.guard.cipher import LocalKey
        return LocalKey.in_file(key.removeprefix("file://"), self.settings.namespace)

    @lazy
    def results(self) -> Results | None:
        """Results table, if there is one."""
        if not self.settings.results_table:
            return None
        if not find_spec("boto3"):
            problem = "needs boto3, which is not installed here: pip install 'duecourse[aws]'"
            raise InvalidSettings([FieldError("DUECOURSE_RESULTS_TABLE", problem)])
        from duecourse.services.aws import DynamoDbResults

        return DynamoDbResults(self.settings.results_table, self.settings.results_retention_ms)

    def results_at(self, place: str) -> Results:
        """Results table that a task names, for reading. Raises ResultsUnavailable where boto3 is missing."""
        if not find_spec("boto3"):
            raise ResultsUnavailable(
                f"the result is in the table {place} of DynamoDB: to read it, run pip install 'duecourse[aws]', and "
                "give this program credentials of AWS"
            )
        from duecourse.services.aws import DynamoDbResults

        return self._tables.setdefault(place, DynamoDbResults.at(place, self.settings.results_retention_ms))

    @lazy
    def _tables(self) -> dict[str, Results]:
        """Tables that tasks named, by their places: a client takes a tenth of a second to make."""
        return {}

    @lazy
    def invoker(self) -> Invoker:
        """The functions' service."""
        from duecourse.services.aws import LambdaInvoker

        return LambdaInvoker(ACCEPTED_WITHIN_MS)

    @lazy
    def brokers(self) -> dict[str, Publisher]:
        """The brokers that tasks are handed to, by the word before a target's colon."""
        from duecourse.services.aws import SqsPublisher
        from duecourse.services.rabbitmq import AmqpPublisher

        return {"sqs": SqsPublisher(), "amqp": AmqpPublisher(self.settings.amqp, secret=self._broker_secret())}

    def _broker_secret(self) -> Secret | None:
        if not self.settings.amqp_secret:
            return None
        from duecourse.services.secrets import ManagedSecret

        return ManagedSecret("DUECOURSE_AMQP_SECRET", self.settings.amqp_secret, check_broker)

    @lazy
    def senders(self) -> dict[str, Sender]:
        """Senders of messages to people, by channel."""
        from duecourse.services.aws import SesSender, SnsSender

        return {Channel.EMAIL: SesSender(self.settings.mail_from), Channel.PHONE: SnsSender(self.settings.sms_from)}

    @lazy
    def writer(self) -> Write:
        """Renderer of reminders. Raises TemplatesMissing."""
        try:
            from duecourse.reminders.writer import TemplateWriter
        except ModuleNotFoundError as error:
            raise TemplatesMissing from error
        return TemplateWriter(self.turns).write

    def write(self, letters: Iterable[Letter]) -> list[Message]:
        """Write out reminders."""
        return self.writer(letters)  # next: `TemplateWriter.write`; Jinja2 is loaded here, for it is heavy

    @lazy
    def http(self) -> HttpCaller:
        """Way out to the web."""
        from duecourse.guard.http_client import GuardedHttpClient

        given = self.settings
        store = self.place.url if given.store or given.store_secret else ""
        servers = [*servers_of(store), *servers_of(given.amqp)]
        return GuardedHttpClient(given.parallel, self.egress, at_once=given.host_calls, servers=servers)

    @lazy
    def caller(self) -> HttpCaller:
        """The same with credentials by name."""
        return AuthenticatingCaller(self.http, self.credentials)

    @lazy
    def credentials(self) -> Credentials:
        """Credentials for calls."""
        from duecourse.services.secrets import ManagedCredentials

        def read(text: str) -> Credential:
            from duecourse.api.credential_secrets import read_credential

            return read_credential(text)

        return ManagedCredentials(self.settings.credential_prefix, read)

    @lazy
    def egress(self) -> Egress:
        """Policy of calls to the web."""
        return Egress.of(self.settings.egress_allow)

    @lazy
    def numbers(self) -> "Numbers":
        """Rule of the numbers that SMS may go to. Raises TemplatesMissing."""
        try:
            from duecourse.guard.sms_numbers import Numbers
        except ModuleNotFoundError as error:
            raise TemplatesMissing from error
        return Numbers(self.settings.sms_countries)

    def number_problem(self, number: str) -> str:
        """Reason why no SMS may go to a number, or ""; the numbers of all countries are read where one is asked for."""
        return self.numbers.problem_of(number)

    @lazy
    def sign(self) -> "Sign":
        """Signer of webhooks: by no secret, unless the settings name one."""
        from duecourse.calls.webhook import unsigned

        if not self.settings.signing_secret:
            return unsigned
        from duecourse.calls.webhook import Signing
        from duecourse.guard.signing_secrets import read_secrets
        from duecourse.services.secrets import SigningSecrets

        return Signing(SigningSecrets(self.settings.signing_secret, read_secrets))

    @lazy
    def rng(self) -> Random:
        """Source of the jitter in delays."""
        return Random()

    @lazy
    def turns(self) -> Turns:
        """Fair turns of the processor, for long computations of tasks."""
        return Turns()

    def now(self) -> int:
        """Time of the ledger (epoch ms)."""
        return self.ledger.now()


def _aes_gcm(key: bytes) -> "AesGcm":
    with _cryptography():
        from duecourse.guard.cipher import AesGcm
    return AesGcm(key)


@contextmanager
def _cryptography() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        raise SealUnavailable(NO_CIPHER) from error


# The App, on these parts: kinds, drains, and the operations that callers have.

log = logging.getLogger("duecourse")


class App(ExternalParts):
    """One configuration of duecourse, and its parts."""

    def close(self) -> None:
        """End the threads, once they are done with what they have, and the connections that were opened here."""
        for name in ("waits", "threads", "http", "ledger"):
            if name in vars(self) and name not in self.given:
                vars(self)[name].close()

    @lazy
    def reminder_kind(self) -> Kind:
        """Handler of reminders."""
        return ReminderKind(self.senders, self.webhook_kind, self.write, self.number_problem, self.ledger.now)

    @lazy
    def webhook_kind(self) -> Kind:
        """Handler of webhooks."""
        from duecourse.calls.webhook import Webhook

        return Webhook(self.caller, self.settings.http_timeout_ms, self.sign, self.now)

    @lazy
    def kinds(self) -> dict[str, Kind]:
        """The kinds that are worked inline."""
        from duecourse.calls.poll import Poll

        return {
            "poll": Poll(self.caller, self.settings.http_timeout_ms, self.turns, self.settings.poll_interval_ms),
            "webhook": self.webhook_kind,
            # Where no target is set; the template hands it to functions/send_reminder.
            "reminder": lambda task: self.reminder_kind(task),  # noqa: PLW0108 - senders are loaded at the first
            SERIES_KIND: lambda task: self.occurrences.run_task(task),  # noqa: PLW0108 - the calendar is loaded at the first
            ENDED: lambda task: self.webhook_kind(self.with_content(task)),
        }

    def with_content(self, task: Task) -> Task:
        """A task as its worker gets it: a completion notification with its content, any other unchanged."""
        if not is_notification(task.id):
            return task
        from duecourse.tasks.http import show_task

        return with_content(task, self.tasks, lambda ended: {**show_task(ended)})

    @lazy
    def threads(self) -> Threads:
        """The threads on which tasks run."""
        return Threads(self.settings.parallel)

    @lazy
    def run_times(self) -> RunTimes:
        """Usual times of runs in this process."""
        return RunTimes()

    def runner(
        self,
        kind_of: Callable[[str], Kind | None],
        opened: Callable[[Task], Task] | None = None,
        elsewhere: Elsewhere | None = None,
        async_kind_of: Callable[[str], AsyncKind | None] = lambda _name: None,
    ) -> Runner:
        """Runner for the kinds that `kind_of` knows; the ledger is opened only if a result needs its time.

        `opened` opens the seals of tasks that come straight from the ledger. `elsewhere` runs tasks in other processes.
        `async_kind_of` knows those of the kinds that are awaited.
        """
        return Runner(kind_of, self.results, self.now, self.rng, opened, elsewhere, async_kind_of)

    @lazy
    def targets(self) -> Targets:
        """Targets of kinds, as a drain of the functions hands tasks to them."""
        # A notification of a death that no target is set for any more is ended here.
        return self.targets_with({*self.kinds, DEAD})

    @lazy
    def inline(self) -> Runner:
        """Runner of the kinds that are worked inline."""
        return self.runner(self.kinds.get, self.seals.opened)

    @lazy
    def drainer(self) -> Drainer:
        """Drainer of shards whose bells rang."""
        limits = Limits(self.settings.lease_ms, self.settings.margin_ms)
        return Drainer(self.ledger, self.inline, self.targets, self.threads, limits, self.fire)

    def fire(self, shard: Shard, due: Sequence[StoredSchedule], now: int) -> None:
        """Fire schedules of a shard that a claim found due at `now` (epoch ms)."""
        self.firer.fire(shard, due, now)  # a drain has this method: the calendar is loaded at the first due schedule

    @lazy
    def firer(self) -> Firer:
        """Firer of due schedules."""
        return Firer(self.ledger, self.calendar)

    def apply_schedules(self, text: str) -> None:
        """Make the schedules of a deployment's file (YAML), once for each number. Raises InvalidInput.

        Each tick calls it, until nothing is left to do.
        """
        files = self.schedule_files
        if files.is_over:
            return
        from duecourse.schedules.file_text import parse_file

        changes = files.apply(parse_file(text))
        if changes:
            counts = {name: len(found) for name, found in changes._asdict().items()}
            log.info("schedules of the deployment's file are applied", extra=counts)

    @lazy
    def schedule_files(self) -> "ScheduleFiles":
        """The verbs on files of schedules."""
        from duecourse.schedules.file import ScheduleFiles

        return ScheduleFiles(self.ledger, self.ledger.schedule_files(), self.schedules)

    @lazy
    def zones(self) -> "TzdataUpdater":
        """Times of schedules by newer time zones."""
        from duecourse.schedules.tzdata_update import TzdataUpdater

        return TzdataUpdater(self.ledger, lambda: self.calendar)

    @lazy
    def schedules(self) -> Schedules:
        """The verbs on schedules."""
        from duecourse.schedules.http import check_fits

        return Schedules(self.ledger, self.calendar, self.tasks.prepared, fits=check_fits, runs=self.tasks.runs)

    def targets_with(self, here: Collection[str], own: Container[str] = ()) -> Targets:
        """Targets of the kinds that are handed over, without its `own` kinds; `here` are the kinds worked inline."""
        dead = {DEAD: self.settings.dead_target} if self.settings.dead_target else {}
        return Targets(
            {kind: target for kind, target in (self.settings.targets | dead).items() if kind not in own},
            self.send(),
            self.brokers,
            self.prepared,
            outstanding=self.settings.outstanding,
            delivery_lease_ms=self.settings.delivery_lease_ms,
            here=here,
        )

    def prepared(self, task: Task) -> Task:
        """A task as its target gets it: with its credentials and, for a completion notification, its content."""
        return self.with_content(self.seals.opened(task))

    def get_ready(self) -> None:
        """Build the parts of a drain, and call the ledger once. Raises StoreUnavailable."""
        self.ledger.warmth().get_ready()
        self.write_deployed()
        self.load_calendar()
        _ = self.drainer

    def load_calendar(self) -> None:
        """Load the calendar and the zones, some 20 ms, for which the first due schedule would wait."""
        _ = self.firer
        self.calendar.local(0, "UTC")  # with the first zone, the libraries that read zones

    def write_deployed(self, own: Collection[str] = ()) -> None:
        """Write the kinds of this deployment into the ledger, and a worker's `own` kinds.

        Programs that know the store alone read it there. Raises StoreUnavailable.
        """
        place = self.results.place if self.results else ""
        self.ledger.deployments().write({*self.known_kinds, *own}, {*self.handed_kinds, *own}, place)

    @lazy
    def deployments(self) -> DeploymentReader:
        """Record of deployments in the ledger."""
        return DeploymentReader(lambda: self.ledger.deployments())  # noqa: PLW0108 - the ledger is opened at the first reading

    def results_named(self) -> Results | None:
        """The results table that the ledger names, if it names one. Raises StoreUnavailable and ResultsUnavailable."""
        place = self.deployments.results()
        return self.results_at(place) if place else None

    def send(self) -> Send:
        """Sender of events to functions; it notes their use, where idle ones are warmed."""
        given = self.settings
        if not given.warm_ms:
            return self.invoker.send
        return UsageRecorder(self.invoker.send, self.ledger.warmth(), given.warm_idle_ms).send

    @lazy
    def warmer(self) -> Warmer:
        """Warmer of functions before they are needed."""
        given = self.settings
        within_ms = given.warm_ms + given.warm_ms // 2  # as far as the bells of one event may be (ringing/warming.py)
        return Warmer(
            self.ledger.warmth(), self.invoker, given.targets, within_ms=within_ms, idle_ms=given.warm_idle_ms
        )

    @lazy
    def warming(self) -> Warming | None:
        """Warming of functions by a tick that lingers: kept, so that each tick knows what rang in those before it."""
        from duecourse.ringing.bridge_event import shards_of

        def warm(bells: Sequence[str]) -> list[str]:
            rings = shards_of(dict.fromkeys(bells, Trigger.TIMER), self.settings.namespace)
            return self.warmer.warm(rings.shards)

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
        for i, one in enumerate(given.watch):
            self._check_watch(i, one)
        # A key's name may look like a credential. It has been in Redis in clear before: it stays so without a key.
        seals = self.seals if self.seals.are_possible else None
        return Watches(self.ledger, given.namespace, given.watch, seals)

    def _check_watch(self, place: int, watch: Watch) -> None:
        try:
            self.seals.check(f"DUECOURSE_WATCH.{place}.payload", dict(watch.payload), watch.kind)
        except InvalidInput as error:
            raise InvalidSettings(error.problems) from None

    @lazy
    def sweeper(self) -> "Sweeper":
        """Sweeper of a tick."""
        return self.sweeper_with(self.drainer)

    def sweeper_with(self, drainer: "ShardDrainer") -> "Sweeper":
        """Sweeper whose due shards this drainer works."""
        from duecourse.ringing.tick import Retention, Sweeper

        retention = Retention(self.settings.retention_ms, self.settings.dead_retention_ms)
        return Sweeper(self.ledger, drainer, retention, self.settings.margin_ms)

    def received_tasks(
        self, runner: Runner, remaining_ms: Callable[[], int], at_once: int | None = None, invocation: str = ""
    ) -> ReceivedTasks:
        """The tasks that one invocation handed to this function."""
        return ReceivedTasks(
            self.ledger,
            runner,
            self.threads,
            remaining_ms,
            at_once=at_once,
            invocation=invocation,
            times=self.run_times,
        )

    @lazy
    def tasks(self) -> Tasks:
        """The verbs on tasks."""
        return Tasks(
            self.ledger,
            self.results,
            self.allowed_kinds,
            self.egress.problem_of,
            self.seals,
            least_interval_ms=self.settings.poll_interval_ms,
            results_at=self.results_at,
        )

    @lazy
    def waits(self) -> CompletionWatcher:
        """Waiters of this process for the ends of tasks."""
        return CompletionWatcher(lambda: self.ledger)

    @lazy
    def waiting(self) -> CompletionWaiter:
        """The verb that waits for the completion of a task."""
        return CompletionWaiter(self.tasks.get, self.waits, lambda: self.ledger)

    @lazy
    def known_kinds(self) -> set[str]:
        """The kinds that a caller may ask for."""
        return {*BUILT_IN, *self.settings.targets} - {REMINDER}

    @lazy
    def handed_kinds(self) -> set[str]:
        """The kinds with a target, which may receive completion notifications."""
        return {kind for kind, target in self.settings.targets.items() if target != INLINE} - {REMINDER}

    @lazy
    def allowed_kinds(self) -> Kinds:
        """Rule of the kinds that a caller may ask for: by the own targets, or where there are none by the ledger."""
        if self.settings.targets:
            return OwnKinds(self.known_kinds, self.handed_kinds)
        given = self.settings
        return LedgerKinds(
            self.known_kinds, self.deployments, lambda: f"{given.namespace} at {split(self.place.url).place}"
        )

    @lazy
    def access(self) -> Access | None:
        """Rule for who may do what over HTTP; None, with a warning, where every caller may do everything."""
        if self.settings.tenant_from is None and not self.settings.tenant_header:
            log.warning(
                "DUECOURSE_TENANT_FROM is not set: every caller of the HTTP API sees and changes the tasks of all "
                "callers, and may settle tasks and set queues"
            )
        return self.settings.tenant_from

    @lazy
    def bulk(self) -> BulkActions:
        """Operations on many tasks or schedules at once."""
        return BulkActions(self.ledger)

    @lazy
    def queues(self) -> Queues:
        """The verbs on queues."""
        return Queues(self.ledger)

    @lazy
    def queries(self) -> Queries:
        """The verbs on queries. The first query loads what a poll needs: each client has the verbs, few ask one."""

        def call(task: Task, left_ms: int) -> Settlement:
            from duecourse.calls.poll import DeadlineCaller, Poll

            kind = Poll(DeadlineCaller(self.caller, left_ms), given.http_timeout_ms, self.turns, given.poll_interval_ms)
            return self.runner(lambda _name: kind, self.seals.opened).run(task)

        def limits(queue: str) -> QueueChanges:
            return limits_of(given.query_parallel, given.shards.get(queue, 1), are_apart=given.are_tenants_apart)

        given = self.settings
        return Queries(
            self.ledger,
            self.results,
            call,
            QueryLimits(limits, given.tenant_max_queries, given.poll_interval_ms),
            self.egress.problem_of,
            self.seals,
            results_named=self.results_named,
        )

    @lazy
    def leases(self) -> Leases:
        """The verbs on leases, for workers outside, which learn of their tasks from an event and answer over HTTP."""
        return Leases(self.ledger, self.runner(lambda _name: None), self.settings.lease_ms, self.seals.opened)

    @lazy
    def one_off_reminders(self) -> "OneOffReminders":
        """Operations on one-off reminders."""
        from duecourse.reminders.one_off import OneOffReminders

        most = self.settings.reminder_messages
        return OneOffReminders(self.ledger, self.write, self.egress.problem_of, self.seals, self.number_problem, most)

    @lazy
    def reminders(self) -> "Reminders":
        """Operations on one-off and recurring reminders."""
        from duecourse.reminders.verbs import Reminders

        return Reminders(self.ledger, self.calendar, self.one_off_reminders)

    @lazy
    def occurrences(self) -> "Occurrences":
        """Updates of the occurrences of recurring reminders."""
        from duecourse.reminders.occurrence_updates import Occurrences

        return Occurrences(self.ledger, self.calendar, self.one_off_reminders)


# The Apps of this process: its environment's, and those of clients; and the handlers that Lambda calls with the first.
#
# Apps with the same settings are one App, whose connections and threads all that have it share.

R = TypeVar("R")


class Process:
    """A process: it has one environment, and so one App for its handlers; each client may have another."""

    def __init__(self) -> None:
        self._app: App | None = None
        self._users: Counter[App] = Counter()
        """Apps that are open, each with the number of its users."""
        self._reading = RLock()

    def renew_locks(self) -> None:
        """Have locks that nobody holds: in a forked child, the threads that held its parent's are not there."""
        self._reading = RLock()
        for app in {*self._users, *([self._app] if self._app else [])}:
            app.building = RLock()

    def app(self) -> App:
        """The App of the environment, read at the first call. Raises InvalidSettings."""
        with self._reading:  # functions may be threads: of two first events, one builds the App
            if self._app is None:
                self._app = self.opened(parse(os.environ))
            return self._app

    def opened(self, settings: Settings) -> App:
        """The App with these settings, for one user more."""
        with self._reading:
            app = next((one for one in self._users if one.settings == settings), None) or App(settings)
            self._users[app] += 1
            return app

    def closed(self, app: App) -> None:
        """Take a user's App back; it is closed after its last user."""
        with self._reading:
            self._users[app] -= 1
            if not self._users[app]:
                del self._users[app]
                app.close()  # before anyone else may open it: a folder has one opener at a time

    @contextmanager
    def using(self, app: App) -> Iterator[App]:
        """Have this App for the while: of a harness that gives its threads another environment, or of a test."""
        before, self._app = self._app, app
        try:
            yield app
        finally:
            self._app = before


PROCESS = Process()
os.register_at_fork(after_in_child=PROCESS.renew_locks)


class Handler(Generic[R]):
    """A Lambda handler from a function of an App, an event and its context; the App is by default the process's."""

    def __init__(self, serve: Callable[[App, Any, Any], R]) -> None:
        self._serve = serve
        update_wrapper(self, serve)

    def __call__(self, event: Json, context: Any) -> R:
        """Serve one event. An import reads no environment: the first event does."""
        return self._serve(PROCESS.app(), event, context)

    def on(self, app: App) -> Callable[[Json, Any], R]:
        """The same handler on this App."""
        return partial(self._serve, app)
