"""The App: every part of the product, put together from one configuration's settings."""

import logging
from collections.abc import Callable, Collection, Container, Sequence
from typing import TYPE_CHECKING

from duecourse.domain.access import Access
from duecourse.domain.address import split
from duecourse.domain.content import KIND as CONTENT
from duecourse.domain.history import Trigger
from duecourse.domain.notification import DEAD, ENDED, is_notification
from duecourse.domain.outcomes import Settlement
from duecourse.domain.query import limits_of
from duecourse.domain.queues import QueueChanges
from duecourse.domain.reminder import KIND as REMINDER
from duecourse.domain.schedule import Kept
from duecourse.domain.series import KIND as SERIES
from duecourse.domain.task import Shard, Task
from duecourse.domain.watch import Watch
from duecourse.engine.bulk import BulkActions
from duecourse.engine.contents import Contents
from duecourse.engine.deployed import Reading
from duecourse.engine.drain import Drainer, Limits
from duecourse.engine.firing import Firer
from duecourse.engine.idempotency import Idempotency
from duecourse.engine.kinds import Kinds, LedgerKinds, OwnKinds
from duecourse.engine.leases import Leases
from duecourse.engine.meetings import Meetings
from duecourse.engine.notifications import with_content
from duecourse.engine.queries import Queries, QueryLimits
from duecourse.engine.queues import Queues
from duecourse.engine.reminders import Reminders
from duecourse.engine.run import Elsewhere, Kind, Runner
from duecourse.engine.run_times import RunTimes
from duecourse.engine.schedules import Schedules
from duecourse.engine.sweep import Drains, Retention, Sweeper
from duecourse.engine.targets import INLINE, Targets
from duecourse.engine.tasks import Tasks
from duecourse.engine.threads import Threads
from duecourse.engine.waiting import Waiting
from duecourse.engine.waits import Waits
from duecourse.engine.warmer import Noting, Warmer
from duecourse.engine.watches import Watches
from duecourse.engine.work import Worker
from duecourse.errors import FieldError, InvalidInput, InvalidSettings
from duecourse.lazy import lazy
from duecourse.outside import Outside
from duecourse.ports.invoker import Send
from duecourse.ports.results import Results
from duecourse.wire.settings.targets import BUILT_IN

if TYPE_CHECKING:
    from duecourse.bridge.rings import Warming
    from duecourse.engine.occurrences import Occurrences
    from duecourse.engine.schedule_file import ScheduleFiles
    from duecourse.engine.zones import Zones

log = logging.getLogger("duecourse")


class App(Outside):
    """One configuration of duecourse, and its parts."""

    def close(self) -> None:
        """End the threads, once they are done with what they have, and the connections that were opened here."""
        for name in ("waits", "threads", "http", "store"):
            if name in vars(self) and name not in self.given:
                vars(self)[name].close()

    @lazy
    def reminder_kind(self) -> Kind:
        """Handler of reminders."""
        from duecourse.kinds.reminder import ReminderKind

        return ReminderKind(self.senders, self.webhook_kind, self.write, self.dial, self.store.now)

    @lazy
    def contents(self) -> Contents:
        """Contents of reminders, which their messages share."""
        return Contents(self.store, self.seals.opened)

    @lazy
    def webhook_kind(self) -> Kind:
        """Handler of webhooks."""
        from duecourse.kinds.webhook import Webhook

        return Webhook(self.caller, self.settings.http_timeout_ms, self.sign, self.now)

    @lazy
    def kinds(self) -> dict[str, Kind]:
        """The kinds that are worked inline."""
        from duecourse.kinds.poll import Poll

        return {
            "poll": Poll(self.caller, self.settings.http_timeout_ms, self.turns, self.settings.poll_interval_ms),
            "webhook": self.webhook_kind,
            "reminder": lambda task: self.reminder_kind(self.filled(task)),
            CONTENT: self.contents.look,
            SERIES: lambda task: self.occurrences.look(task),  # noqa: PLW0108 - the calendar is loaded at the first
            ENDED: lambda task: self.webhook_kind(self.filled(task)),
        }

    def filled(self, task: Task) -> Task:
        """A task as its worker gets it: a completion notification, or a reminder's message, with its content."""
        if task.kind == REMINDER:
            return self.contents.filled(task)
        if not is_notification(task.id):
            return task
        from duecourse.wire.http.tasks import show_task

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
    ) -> Runner:
        """Runner for the kinds that `kind_of` knows; the ledger is opened only if a result needs its time.

        `opened` opens the seals of tasks that come straight from the ledger. `elsewhere` runs tasks in other processes.
        """
        return Runner(kind_of, self.results, self.now, self.rng, opened, elsewhere)

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
        return Drainer(self.store, self.inline, self.targets, self.threads, limits, self.fire)

    def fire(self, shard: Shard, due: Sequence[Kept], now: int) -> None:
        """Fire schedules of a shard that a claim found due at `now` (epoch ms)."""
        self.firer.fire(shard, due, now)

    @lazy
    def firer(self) -> Firer:
        """Firer of due schedules."""
        return Firer(self.store, self.calendar)

    def apply_schedules(self, text: str) -> None:
        """Make the schedules of a deployment's file (YAML), once for each number. Raises InvalidInput.

        Each tick calls it, until nothing is left to do.
        """
        files = self.schedule_files
        if files.is_over:
            return
        from duecourse.wire.schedule_file import parse_file

        changes = files.apply(parse_file(text))
        if changes:
            counts = {name: len(found) for name, found in changes._asdict().items()}
            log.info("schedules of the deployment's file are applied", extra=counts)

    @lazy
    def schedule_files(self) -> "ScheduleFiles":
        """The verbs on files of schedules."""
        from duecourse.engine.schedule_file import ScheduleFiles

        return ScheduleFiles(self.store, self.store.schedule_files(), self.schedules)

    @lazy
    def zones(self) -> "Zones":
        """Times of schedules by newer time zones."""
        from duecourse.engine.zones import Zones

        return Zones(self.store, lambda: self.calendar)

    @lazy
    def schedules(self) -> Schedules:
        """The verbs on schedules."""
        from duecourse.wire.http.schedules import check_fits

        return Schedules(self.store, self.calendar, self.tasks.prepared, fits=check_fits, runs=self.tasks.runs)

    def targets_with(self, here: Collection[str], own: Container[str] = ()) -> Targets:
        """Targets of the kinds that are handed over, those of its own left out; `here` are those worked inline."""
        dead = {DEAD: self.settings.dead_target} if self.settings.dead_target else {}
        return Targets(
            {kind: target for kind, target in (self.settings.targets | dead).items() if kind not in own},
            self.send(),
            self.brokers,
            lambda task: self.filled(self.seals.opened(task)),
            outstanding=self.settings.outstanding,
            delivery_lease_ms=self.settings.delivery_lease_ms,
            here=here,
        )

    def get_ready(self) -> None:
        """Put together what a drain needs, and ask the ledger to answer. Raises StoreUnavailable."""
        self.store.warmth().get_ready()
        self.write_deployed()
        self.load_calendar()
        _ = self.drainer

    def load_calendar(self) -> None:
        """Load what the first due schedule would wait for: some 20 ms."""
        _ = self.firer
        self.calendar.local(0, "UTC")  # with the first zone, the libraries that read zones

    def write_deployed(self, own: Collection[str] = ()) -> None:
        """Write what this deployment has into the ledger, and a worker its `own` kinds.

        Programs that know the store alone read it there. Raises StoreUnavailable.
        """
        place = self.results.place if self.results else ""
        self.store.deployments().write({*self.known_kinds, *own}, {*self.handed_kinds, *own}, place)

    @lazy
    def deployed(self) -> Reading:
        """Record of deployments in the ledger."""
        return Reading(lambda: self.store.deployments())  # noqa: PLW0108 - the ledger is opened at the first reading

    def results_named(self) -> Results | None:
        """The results table that the ledger names, if it names one. Raises StoreUnavailable and ResultsUnavailable."""
        place = self.deployed.results()
        return self.results_at(place) if place else None

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
        from duecourse.wire.events.rings import shards_of

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
        store = self.adds if self.seals.are_possible else self.store
        return Watches(store, given.namespace, given.watch)

    def _check_watch(self, place: int, watch: Watch) -> None:
        try:
            self.seals.check(f"DUECOURSE_WATCH.{place}.payload", dict(watch.payload), watch.kind)
        except InvalidInput as error:
            raise InvalidSettings(error.problems) from None

    @lazy
    def sweeper(self) -> Sweeper:
        """Sweeper of a tick."""
        return self.sweeper_with(self.drainer)

    def sweeper_with(self, drainer: Drains) -> Sweeper:
        """Sweeper that has what it finds due drained so."""
        retention = Retention(self.settings.retention_ms, self.settings.dead_retention_ms)
        return Sweeper(self.store, drainer, retention, self.settings.margin_ms)

    def worker(
        self, kind: Kind, remaining_ms: Callable[[], int], parallel: int | None = None, invocation: str = ""
    ) -> Worker:
        """Worker of the tasks that one invocation handed to this function, all of its one kind."""
        runner = self.runner(lambda _name: kind)
        return Worker(
            self.store,
            runner,
            self.threads,
            remaining_ms,
            parallel=parallel,
            invocation=invocation,
            times=self.run_times,
        )

    @lazy
    def tasks(self) -> Tasks:
        """The verbs on tasks."""
        least_ms, check = self.settings.poll_interval_ms, self.seals.check_task
        return Tasks(
            self.adds,
            self.results,
            self.asked_kinds,
            self.reach,
            check=check,
            least_interval_ms=least_ms,
            results_at=self.results_at,
        )

    @lazy
    def waits(self) -> Waits:
        """Waiters of this process for the ends of tasks."""
        return Waits(lambda: self.store)

    @lazy
    def waiting(self) -> Waiting:
        """The verb that waits for the completion of a task."""
        return Waiting(self.tasks.get, self.waits, lambda: self.store)

    @lazy
    def known_kinds(self) -> set[str]:
        """The kinds that a caller may ask for."""
        return {*BUILT_IN, *self.settings.targets} - {REMINDER}

    @lazy
    def handed_kinds(self) -> set[str]:
        """The kinds with a target, which may receive completion notifications."""
        return {kind for kind, target in self.settings.targets.items() if target != INLINE} - {REMINDER}

    @lazy
    def asked_kinds(self) -> Kinds:
        """Rule of the kinds that a caller may ask for: by the own targets, or where there are none by the ledger."""
        if self.settings.targets:
            return OwnKinds(self.known_kinds, self.handed_kinds)
        given = self.settings
        return LedgerKinds(
            self.known_kinds, self.deployed, lambda: f"{given.namespace} at {split(self.place.url).place}"
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
    def idempotency(self) -> Idempotency:
        """Requests with an Idempotency-Key."""
        return Idempotency(self.store.idempotency())

    @lazy
    def many(self) -> BulkActions:
        """Operations on many tasks or schedules at once."""
        return BulkActions(self.store)

    @lazy
    def queues(self) -> Queues:
        """The verbs on queues."""
        return Queues(self.store)

    @lazy
    def queries(self) -> Queries:
        """The verbs on queries. The first query loads what a poll needs: each client has the verbs, few ask one."""

        def call(task: Task, left_ms: int) -> Settlement:
            from duecourse.kinds.poll import Hurried, Poll

            kind = Poll(Hurried(self.caller, left_ms), given.http_timeout_ms, self.turns, given.poll_interval_ms)
            return self.runner(lambda _name: kind, self.seals.opened).run(task)

        def limits(queue: str) -> QueueChanges:
            return limits_of(given.query_parallel, given.shards.get(queue, 1), are_apart=given.are_tenants_apart)

        given = self.settings
        return Queries(
            self.adds,
            self.results,
            call,
            QueryLimits(limits, given.tenant_max_queries, given.poll_interval_ms),
            self.reach,
            self.seals,
            results_named=self.results_named,
        )

    @lazy
    def leases(self) -> Leases:
        """The verbs on leases, for workers outside, which learn of their tasks from an event and answer over HTTP."""
        return Leases(self.store, self.runner(lambda _name: None), self.settings.lease_ms, self.seals.opened)

    @lazy
    def reminders(self) -> Reminders:
        """The verbs on reminders of one start."""
        most = self.settings.reminder_messages
        return Reminders(self.adds, self.write, self.reach, self.seals, self.dial, most)

    @lazy
    def meetings(self) -> Meetings:
        """The verbs on reminders of one start, and on those that come again."""
        return Meetings(self.adds, self.store, self.calendar, self.reminders)

    @lazy
    def occurrences(self) -> "Occurrences":
        """Keeper of the occurrences of reminders that come again."""
        from duecourse.engine.occurrences import Occurrences

        return Occurrences(self.adds, self.store, self.calendar, self.reminders)
