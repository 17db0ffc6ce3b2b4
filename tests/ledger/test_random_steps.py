"""Every store against a plain model of the design's table: every verb, two callers, lost replies, clock steps."""

import os
import secrets
from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import redis
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from duecourse.errors import StoreUnavailable
from duecourse.ledger.connect import connect
from duecourse.ledger.embedded.ledger import EmbeddedLedger
from duecourse.ledger.layout import INSIDE
from duecourse.ledger.many_tasks import Act, Bulk
from duecourse.ledger.operation_types import Delivery, Fired, Lease, Move, Outlook
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.schedule import (
    NEVER,
    Became,
    Every,
    Firing,
    Occurrence,
    Overlap,
    Progress,
    Rule,
    Schedule,
    StoredSchedule,
    backfill_id,
    occurrence_id,
)
from duecourse.ledger.task import (
    Apart,
    Ending,
    Entry,
    NewTask,
    OnDuplicate,
    RetryPolicy,
    Run,
    Settlement,
    Status,
    Task,
    Trigger,
)
from tests.support import redis_ledger
from tests.support.clock import HandClock
from tests.support.ledger import SHARD
from tests.support.ledger_model import HANDED, TARGET
from tests.support.level_ledger import level_ledger
from tests.support.matrix import LENGTHY, in_turn
from tests.support.proxies import LossyProxy, load_scripts
from tests.support.redis_server import RedisServer
from tests.support.series_model import SeriesModel

QUEUE = SHARD.queue
LIVE = [Status.SCHEDULED, Status.LEASED]
OTHERS = [Status.SCHEDULED, Status.DONE, Status.CANCELLED, Status.DEAD]
UNSYNCED = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # noqa: S108 - a folder of its own is made in it
"""Where a change is not waited for until it is on a disk: no power is cut here."""
LONG = os.environ.get("HYPOTHESIS_PROFILE") == "long"
pytestmark = pytest.mark.timeout(7_200) if LONG else LENGTHY
EXAMPLES = in_turn(15, 1_500 if LONG else 130)
PROFILE = settings(
    stateful_step_count=60 if LONG else 50,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
    suppress_health_check=list(HealthCheck),
    print_blob=True,
)

SERIES = Schedule("s", "work", Rule(Every(1_000), HandClock().at), retry=RetryPolicy(2, 40, 1.0, 70, jitter=False))
NOMINALS = [HandClock().at + 1_000 * n for n in (1, 2, 3)]
FILLING = replace(SERIES, id=backfill_id("s", NOMINALS[0]), of="s")
OCCURRENCES = [occurrence_id("s", nominal) for nominal in NOMINALS]
IDS = [*"abcd", *OCCURRENCES]
ids = st.sampled_from([*"abcd", *"abcd", *OCCURRENCES])
payloads = st.sampled_from(["1", '"ü"', *('"' + "x" * (size - 2) + '"' for size in (INSIDE, INSIDE + 1))])
"""The last two are the largest that stays inside its record, and the smallest that is apart from it."""
delays = st.sampled_from([0, 0, 0, 1, 10, 100, 1_500])
states = st.sampled_from([None, "1", '{"é":[2]}'])
callers = st.sampled_from([0, 1])
lost = st.booleans().flatmap(lambda often: st.just(False) if often else st.booleans())


@st.composite
def new_tasks(draw: st.DrawFn) -> NewTask:
    """A task as asked for, with every option now and then."""
    group = draw(st.sampled_from(["", "g", "h"]))
    apart = Apart(*sorted([draw(ids), draw(ids)])) if group and draw(st.integers(0, 3)) == 0 else None
    return NewTask(
        draw(ids),
        draw(st.sampled_from(["work", HANDED])),
        draw(payloads),
        group=group,
        state=draw(states) or "",
        due_at=HandClock().at + 50 if draw(st.integers(0, 9)) == 0 else None,
        delay_ms=draw(delays),
        deadline_at=HandClock().at + 70 if draw(st.integers(0, 9)) == 0 else None,
        deadline_ms=draw(st.sampled_from([None, None, None, 5, 120])),
        retry=RetryPolicy(draw(st.sampled_from([1, 2, 3, 4])), 40, draw(st.sampled_from([1.0, 1.5])), 70, jitter=False),
        on_duplicate=draw(st.sampled_from(OnDuplicate)),
        by=draw(st.sampled_from(["", "http", "ü"])),
        max_wait_ms=draw(st.sampled_from([0, 50, 3_600_000])),
        apart=apart,
    )


def _runs(log: tuple[Entry, ...]) -> list[Run]:
    return [entry for entry in log if isinstance(entry, Run)]


class Names:
    """Which of a store's numbers (fences, generations) stands for which of the model's; both must grow alike."""

    def __init__(self) -> None:
        self.tokens: dict[int, str] = {}
        self._numbers: dict[int, int] = {}

    def translate(self, shown: Task, expected: Task) -> Task:
        """The store's task in the model's numbers."""
        self._learn(shown.generation, expected.generation)
        if shown.token and expected.token:
            self._learn(shown.fence, int(expected.token))
            self.tokens[int(expected.token)] = shown.token
        for run, model_run in zip(_runs(shown.log), _runs(expected.log), strict=False):
            self._learn(run.fence, model_run.fence)
        log = tuple(self._in_ours(entry) for entry in shown.log)
        token = str(self._numbers[shown.fence]) if shown.token else ""
        delivery = str(self._numbers[int(shown.delivery[:12], 16)]) if shown.delivery else ""
        generation = self._numbers[shown.generation]
        return replace(shown, generation=generation, token=token, log=log, delivery=delivery)

    def _in_ours(self, entry: Entry) -> Entry:
        return replace(entry, fence=self._numbers[entry.fence]) if isinstance(entry, Run) else entry

    def check_order(self) -> None:
        """Fail where two numbers were drawn in another order than the model drew them."""
        theirs = [ours for _, ours in sorted(self._numbers.items())]
        assert theirs == sorted(set(theirs))

    def _learn(self, number: int, ours: int) -> None:
        assert self._numbers.setdefault(number, ours) == ours


class LedgerMachine(RuleBasedStateMachine):
    """Does the same to the model, the stores without a server and Redis, and compares what they answer and hold."""

    def __init__(self, proxy: LossyProxy, client: redis.Redis, direct: redis.Redis) -> None:
        super().__init__()
        direct.flushall()
        self.clock = HandClock()
        self.model = SeriesModel(self.clock)
        self.proxy, self.direct = proxy, direct
        self.redis = Ledger(client, travel=self.clock)
        self.opened = ExitStack()
        folder = Path(self.opened.enter_context(TemporaryDirectory(prefix="duecourse-", dir=UNSYNCED)))
        level = self.opened.enter_context(level_ledger(folder / "ledger", self.clock))
        self.ledgers: list[Ledger] = [EmbeddedLedger(self.clock), level, self.redis]
        self.names = [Names(), Names(), Names()]
        self.hands: dict[int, list[tuple[str, int]]] = defaultdict(list)
        self.fence = 0

    @rule(tasks=st.lists(new_tasks(), min_size=1, max_size=3), lost=lost)
    def add(self, tasks: list[NewTask], lost: bool) -> None:
        # What kept one apart may have left its group since, within the same batch.
        lost = lost and len({task.id for task in tasks}) == len(tasks) and not any(task.apart for task in tasks)
        replies = [self.model.add(task) for task in tasks]
        self._same(lambda ledger, _: [added.reply for added in ledger.add(tasks)], replies, lost=lost)

    @rule(
        caller=callers,
        limit=st.integers(1, 3),
        lease_ms=st.sampled_from([1, 50, 2_000]),
        max_bytes=st.sampled_from([1, 4_000_000]),
        trigger=st.sampled_from(Trigger),
        most=st.sampled_from([0, 1, 1, 2]),
        lost=lost,
        at_once=st.sampled_from([0, 1, 500]),
    )
    def claim(
        self,
        caller: int,
        limit: int,
        lease_ms: int,
        max_bytes: int,
        trigger: Trigger,
        most: int,
        lost: bool,
        at_once: int = 500,
    ) -> None:
        leased, died, backlog = self.model.claim(limit, lease_ms, max_bytes == 1, trigger, most, at_once)
        handing = {HANDED: Delivery(TARGET, most, 2 * lease_ms)} if most else {}
        bounds: dict[str, Any] = {
            "lease_ms": lease_ms,
            "max_bytes": max_bytes,
            "trigger": trigger,
            "deliveries": handing,
            "at_once": at_once,
        }
        bell_at = self.model.hang()
        for ledger, names in zip(self.ledgers, self.names, strict=True):
            is_lost = lost and ledger is self.redis
            self.redis.lost_claims.take(SHARD)  # of an earlier claim that leased nothing: no look for it comes first
            if is_lost and not leased:
                self._lose(lambda: self.redis.claim(SHARD, limit, **bounds))
                continue
            if is_lost:
                self.proxy.lose_next_reply()
            claim = ledger.claim(SHARD, limit, **bounds)
            expected = [task for id in leased if (task := self.model.task(id))]
            shown = [names.translate(task, own) for task, own in zip(claim.tasks, expected, strict=True)]
            assert shown == expected
            if is_lost:  # what it leased was found, and nothing else is known of it
                continue
            assert (claim.died, claim.backlog, claim.bell_at, claim.now) == (died, backlog, bell_at, self.clock.at)
            assert [kept.schedule.id for kept in claim.schedules] == self._due()
        self.hands[caller] += [(id, self.model.rows[id].token) for id in leased]

    @rule(
        caller=callers,
        limit=st.integers(2, 5),
        endings=st.lists(st.sampled_from(Ending), min_size=5, max_size=5),
        delay_ms=st.sampled_from([0, 0, 10]),
        lost=lost,
    )
    def claim_and_settle_all(self, caller: int, limit: int, endings: list[Ending], delay_ms: int, lost: bool) -> None:
        before = len(self.hands[caller])
        self.claim(caller, limit, 50, 4_000_000, Trigger.TAKE, most=0, lost=False)
        held = self.hands[caller][before:]
        asked = [
            (Settlement(id, "-", "", ending, delay_ms, None, None, "because", "8"), n)
            for (id, n), ending in zip(held, endings, strict=False)
        ]
        self._settle(asked, lost)

    @rule(
        caller=callers,
        data=st.data(),
        ending=st.sampled_from(Ending),
        delay_ms=delays,
        state=states,
        repeat=st.booleans(),
        lost=lost,
    )
    @precondition(lambda self: any(self.hands.values()))
    def settle(
        self,
        caller: int,
        data: st.DataObject,
        ending: Ending,
        delay_ms: int,
        state: str | None,
        repeat: bool,
        lost: bool,
    ) -> None:
        if not self.hands[caller]:
            return
        held = data.draw(st.lists(st.sampled_from(self.hands[caller][-6:]), min_size=1, max_size=3))
        asked = [(Settlement(id, "-", "", ending, delay_ms, None, state, "why", "7"), n) for id, n in held]
        self._settle(asked, lost)
        if repeat:
            self._settle(asked, lost=False)

    @rule(caller=callers, data=st.data(), lease_ms=st.sampled_from([50, 2_000]), lost=lost, repeat=st.booleans())
    @precondition(lambda self: any(self.hands.values()))
    def begin(self, caller: int, data: st.DataObject, lease_ms: int, lost: bool, repeat: bool) -> None:
        if not self.hands[caller]:
            return
        id, n = data.draw(st.sampled_from(self.hands[caller][-6:]))
        nonce = secrets.token_bytes(8)
        run, end = self.model.begin(id, n, lease_ms)

        def send(ledger: Ledger, names: Names, nonce: bytes = nonce) -> tuple[int, int, bool]:
            [begun] = ledger.begin(SHARD, [Lease(id, names.tokens[n])], lease_ms, [nonce])
            return begun.run, begun.expires_at, begun.token.endswith(nonce.hex()) and bool(begun.token)

        self._same(send, (run, end, run > 0), lost=lost)
        if repeat:
            self._same(lambda ledger, names: send(ledger, names, bytes(8)), (0, 0, False))
        if run:
            self.hands[caller].append((id, self.model.rows[id].token))
            self.every_task_stands_as_the_model_says()

    @rule(caller=callers, data=st.data(), lease_ms=st.sampled_from([1, 50, 2_000]), lost=lost)
    @precondition(lambda self: any(self.hands.values()))
    def extend(self, caller: int, data: st.DataObject, lease_ms: int, lost: bool) -> None:
        if self.hands[caller]:
            id, n = data.draw(st.sampled_from(self.hands[caller][-6:]))
            end = self.model.extend(id, n, lease_ms)
            self._same(lambda s, names: s.extend(SHARD, [Lease(id, names.tokens[n])], lease_ms), [end], lost=lost)

    @rule(caller=callers, data=st.data(), lost=lost)
    @precondition(lambda self: any(self.hands.values()))
    def save(self, caller: int, data: st.DataObject, lost: bool) -> None:
        if self.hands[caller]:
            id, n = data.draw(st.sampled_from(self.hands[caller][-6:]))
            kept = self.model.save(id, n, '"saved"')
            self._same(lambda s, names: s.save(SHARD, Lease(id, names.tokens[n]), '"saved"'), kept, lost=lost)

    @rule(chosen=st.lists(ids, min_size=1, max_size=2), delay_ms=delays, state=states, how=st.integers(0, 3), lost=lost)
    def move(self, chosen: list[str], delay_ms: int, state: str | None, how: int, lost: bool) -> None:
        moves = [Move(id, None, delay_ms, state, bool(how & 1), bool(how & 2), "http") for id in chosen]
        replies = [self.model.move(move) for move in moves]
        self._same(lambda ledger, _: ledger.move(QUEUE, moves), replies, lost=lost)

    @rule(chosen=st.lists(ids, min_size=1, max_size=2), force=st.booleans(), lost=lost)
    def cancel(self, chosen: list[str], force: bool, lost: bool) -> None:
        replies = [self.model.cancel(id, force, "me") for id in chosen]
        self._same(
            lambda ledger, _: ledger.cancel(QUEUE, chosen, force=force, by="me"), replies, lost=lost, repeated=False
        )

    @rule(
        act=st.sampled_from([Act.COUNT, Act.DELETE, Act.CANCEL]),
        data=st.data(),
        kind=st.sampled_from(["", "", "work", HANDED]),
        group=st.sampled_from(["", "", "g", "h"]),
        min_age_ms=st.sampled_from([0, 0, 1, 50]),
        limit=st.sampled_from([1, 2, 100]),
        lost=lost,
    )
    def bulk(
        self, act: Act, data: st.DataObject, kind: str, group: str, min_age_ms: int, limit: int, lost: bool
    ) -> None:
        status = data.draw(st.sampled_from(LIVE if act == Act.CANCEL else OTHERS))
        asked = Bulk(act, (status,), kind, group, min_age_ms, limit)
        count = self.model.bulk(asked, "me")
        self._same(lambda ledger, _: ledger.bulk(QUEUE, asked, by="me").tasks, count, lost=lost, repeated=False)

    @rule(chosen=st.lists(ids, min_size=1, max_size=2), lost=lost)
    def replay(self, chosen: list[str], lost: bool) -> None:
        replies = [self.model.replay(id, "me") for id in chosen]
        self._same(lambda ledger, _: ledger.replay(QUEUE, chosen, by="me"), replies, lost=lost, repeated=False)

    @rule(
        filling=st.booleans(),
        overlap=st.sampled_from(Overlap),
        deadline_ms=st.sampled_from([None, 90]),
        delay_ms=delays,
        lost=lost,
    )
    def put_schedule(self, filling: bool, overlap: Overlap, deadline_ms: int | None, delay_ms: int, lost: bool) -> None:
        schedule = replace(FILLING if filling else SERIES, overlap=overlap, deadline_ms=deadline_ms)
        progress = Progress(nominal=NOMINALS[0], next_at=self.clock.at + delay_ms)
        put = self.model.plan(schedule, progress)
        self._same(lambda ledger, _: ledger.put_schedule(schedule, progress).put, put, lost=lost)

    @rule(
        data=st.data(),
        place=st.sampled_from([0, 1, 2]),
        delay_ms=st.sampled_from([0, 10, None]),
        stale=st.booleans(),
        lost=lost,
    )
    @precondition(lambda self: self.model.planned)
    def fire(self, data: st.DataObject, place: int, delay_ms: int | None, stale: bool, lost: bool) -> None:
        one = data.draw(st.sampled_from(self.model.planned))
        task, nominal = one.schedule.occurrence(NOMINALS[place], self.clock.at), NOMINALS[place]
        others = [entry for entry in one.progress.recent if entry.nominal != nominal]
        after = replace(
            one.progress,
            nominal=None if delay_ms is None else nominal,
            fired=one.progress.fired + 1,
            next_at=NEVER if delay_ms is None else self.clock.at + delay_ms,
            recent=(*others, Occurrence(nominal, Became.LIVE)),
        )
        reads = [self._kept(ledger, one.schedule.id) for ledger in self.ledgers]
        firings = iter([Firing(read, (task,), after) for read in reads])
        fired = self.model.fire(one, task, after)
        lost = lost and one in self.model.planned  # of a backfill that is over nothing is left to know its step by
        self._same(lambda ledger, _: ledger.fire(SHARD, [next(firings)]), [fired], lost=lost)
        if stale:
            again = iter([Firing(read, (task,), after) for read in reads])
            self._same(lambda ledger, _: ledger.fire(SHARD, [next(again)]), [Fired.STALE])

    @rule()
    def drop_schedule(self) -> None:
        dropped = self.model.drop()
        self._same(lambda ledger, _: ledger.drop_schedule(QUEUE, "s"), dropped)

    def _due(self) -> list[str]:
        """Ids of the schedules that a claim finds due."""
        dues = sorted((one.progress.next_at, one.schedule.id) for one in self.model.planned)
        return [id for at, id in dues if at <= self.clock.at and not self.model.paused]

    def _kept(self, ledger: Ledger, id: str) -> StoredSchedule:
        found = ledger.schedule(QUEUE, id)
        assert found
        return found

    @rule(paused=st.booleans(), lost=lost)
    def pause(self, paused: bool, lost: bool) -> None:
        self.model.pause(paused)
        self._same(lambda ledger, _: ledger.configure(QUEUE, {"paused": paused}), True, lost=lost)

    @rule(retention_ms=st.sampled_from([0, 100, 60_000]))
    def sweep(self, retention_ms: int) -> None:
        answer = (*self.model.sweep(retention_ms), False)
        self._same(lambda ledger, _: ledger.sweep(SHARD, retention_ms=retention_ms)[:4], answer)

    @rule(ms=st.sampled_from([1, 9, 50, 100, 1_000, 2_000]))
    def time_passes(self, ms: int) -> None:
        self.clock.advance(ms)

    @rule(past=st.sampled_from([-1, 0, 0, 1]))
    @precondition(lambda self: self.model.bell > self.clock.at)
    def the_bell_rings(self, past: int) -> None:
        """The clock goes to the instant that could change something, or to a millisecond beside it."""
        self.clock.at = max(self.clock.at, self.model.bell + past)

    @rule(ms=st.sampled_from([1, 60, 1_200]))
    def clock_steps_back(self, ms: int) -> None:
        """As a server's may, by a correction; the next tick's sweep hangs the bell by the new time."""
        self.clock.advance(-ms)
        self.sweep(60_000)

    @invariant()
    def every_task_stands_as_the_model_says(self) -> None:
        for ledger, names in zip(self.ledgers, self.names, strict=True):
            for id in IDS:
                shown, expected = ledger.get(QUEUE, id), self.model.task(id)
                assert (names.translate(shown, expected) if shown and expected else shown) == expected
            names.check_order()

    @invariant()
    def the_schedule_and_its_backfill_are_as_the_model_says(self) -> None:
        expected = {one.schedule.id: (one.schedule, one.progress) for one in self.model.planned}
        for ledger in self.ledgers:
            for id in ("s", FILLING.id):
                found = ledger.schedule(QUEUE, id)
                assert (found and (found.schedule, found.progress)) == expected.get(id)

    @invariant()
    def every_number_is_true(self) -> None:
        for ledger in self.ledgers:
            assert ledger.stats(SHARD) == self.model.stats()
            [outlook] = ledger.outlook_of([SHARD])
            assert isinstance(outlook, Outlook)
            assert outlook.dead == self.model.stats().dead
            next_at = self.model.next_at()
            if self.model.waiting or 0 < next_at <= self.model.now:
                assert 0 < outlook.next_at <= self.model.now
            elif next_at:  # what was due before the clock stepped back may count as due still
                assert 0 < outlook.next_at <= next_at
            else:
                assert outlook.next_at == 0
            for group in ("g", "h", "s"):
                assert [task.id for task in ledger.group(QUEUE, group)] == self.model.group(group)

    @invariant()
    def every_key_agrees_with_the_others(self) -> None:
        fence = redis_ledger.check(self.direct)
        assert fence >= self.fence
        self.fence = fence

    def teardown(self) -> None:
        self.opened.close()

    def _settle(self, asked: list[tuple[Settlement, int]], lost: bool) -> None:
        replies = [self.model.settle(settlement, n) for settlement, n in asked]

        def send(ledger: Ledger, names: Names) -> object:
            return ledger.settle(SHARD, [s._replace(token=names.tokens[n]) for s, n in asked])

        self._same(send, replies, lost=lost and bool(asked))

    def _same(
        self,
        verb: Callable[[Ledger, Names], object],
        expected: object,
        *,
        lost: bool = False,
        repeated: bool = True,
    ) -> None:
        """Each store must answer as expected; where a reply is lost, `repeated` says whether Redis is asked again."""
        self.model.hang()
        for ledger, names in zip(self.ledgers, self.names, strict=True):
            if lost and ledger is self.redis:
                if not repeated:
                    self._lose(lambda: verb(self.redis, self.names[-1]))
                    continue
                self.proxy.lose_next_reply()
            assert verb(ledger, names) == expected

    def _lose(self, verb: Callable[[], Any]) -> None:
        self.proxy.lose_next_reply()
        try:
            verb()
        except StoreUnavailable:
            return
        raise AssertionError("it was asked again, and nobody knows whether it was done twice")


@pytest.mark.parametrize("examples", EXAMPLES)
def test_every_store_answers_as_the_model_does(examples: int, redis_server: RedisServer) -> None:
    with (
        LossyProxy(redis_server.socket) as proxy,
        connect(proxy.url) as client,
        redis_server.client() as direct,
    ):
        load_scripts(direct)
        profile = settings(PROFILE, max_examples=examples)
        run_state_machine_as_test(lambda: LedgerMachine(proxy, client, direct), settings=profile)
