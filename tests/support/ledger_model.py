"""The ledger in plain Python, close to the design's table: what every store must answer, written without one."""

from dataclasses import dataclass, field, replace

from duecourse.ledger.many_tasks import Act, Bulk
from duecourse.ledger.operation_types import Move, Reply, Settled
from duecourse.ledger.queue import SLOT_MS, SLOTS, QueueSettings, Stats
from duecourse.ledger.schedule import NEVER
from duecourse.ledger.task import (
    LOG_LENGTH,
    Action,
    Change,
    Ending,
    Entry,
    NewTask,
    OnDuplicate,
    Run,
    Settlement,
    Status,
    Task,
    Trigger,
)
from duecourse.running.hand_over import MAX_TASKS
from tests.support.clock import HandClock

R, S = Reply, Status
ADD = {
    OnDuplicate.KEEP: {S.SCHEDULED: R.KEPT, S.LEASED: R.KEPT, S.DEAD: R.DEAD},
    OnDuplicate.REPLACE: {S.SCHEDULED: R.REPLACED, S.LEASED: R.REPLACED, S.DEAD: R.REPLACED},
    OnDuplicate.REJECT: {S.SCHEDULED: R.SCHEDULED, S.LEASED: R.LEASED, S.DEAD: R.DEAD},
    OnDuplicate.DEBOUNCE: {S.SCHEDULED: R.DEBOUNCED, S.LEASED: R.REPLACED, S.DEAD: R.DEAD},
}
"""What an add answers where its id stands already; where it does not, or finished, a new task is created."""
SETTLED = {
    Ending.DONE: Settled.DONE,
    Ending.AGAIN: Settled.AGAIN,
    Ending.RETRY: Settled.RETRIED,
    Ending.DROP: Settled.DEAD,
    Ending.RELEASE: Settled.RELEASED,
    Ending.UNDELIVERED: Settled.RELEASED,
}
TARGET, HANDED = "lambda:report", "report"
"""Whom tasks of one kind are handed to."""
UNUSED = ("release", "undelivered")


@dataclass
class Row:
    """One task; `token` is the number of its last lease, 0 for none or for one that was taken away."""

    asked: NewTask
    due: int
    created: int
    deadline: int
    generation: int
    state: str
    status: Status = S.SCHEDULED
    run: int = 0
    attempt: int = 1
    token: int = 0
    claimed: int = 0
    lease_end: int = 0
    ended: int = 0
    result: str = ""
    last: tuple[Ending, Settled] | None = None
    log: list[Entry] = field(default_factory=list)
    forgotten: int = 0
    came: Action = Action.ADDED
    by: str = ""
    trigger: Trigger | None = None
    successor: "Row | None" = None
    handed: bool = False
    ahead: bool = False
    delivery: int = 0
    aside: int = 0
    occurs: bool = False

    @property
    def looked_at(self) -> int:
        """When a claim next looks at it, which is not when it is due where it is put aside."""
        return self.aside or self.due


class Model:
    """One shard."""

    def __init__(self, clock: HandClock) -> None:
        self.clock = clock
        self.rows: dict[str, Row] = {}
        self.fence = 0
        self.paused = False
        self.bell = 0
        self._made_due = self._woken = False
        self.waiting: set[tuple[int, int, str]] = set()
        self.wake, self.most = False, 0
        self.busy = {TARGET: 0, HANDED: 0}
        self.spared = 0
        self.lapsed: dict[int, tuple[int, int]] = {}

    @property
    def now(self) -> int:
        return self.clock.at

    def add(self, new: NewTask) -> Reply:
        old = self.rows.get(new.id)
        if new.apart and (old or any(new.group in groups for groups in self._groups(*new.apart))):
            return R.KEPT
        if not old or old.status in (S.DONE, S.CANCELLED):
            self._schedule(new.id, self._fresh(new))
            return R.CREATED
        reply = ADD[new.on_duplicate][old.status]
        if reply == R.REPLACED and old.status == S.LEASED:
            old.successor, old.ahead = self._fresh(new), False  # its record is written anew
        elif reply == R.REPLACED:
            self._schedule(new.id, self._replacing(self._fresh(new), old))
        elif reply == R.DEBOUNCED:
            pushed = self._debounced(new, old)
            if 0 < pushed.deadline <= pushed.due:
                return R.PAST_DEADLINE
            self._schedule(new.id, pushed)
        return reply

    def _groups(self, first: str, last: str) -> list[set[str]]:
        """The groups of each task whose id is within those two: its own, and its successor's."""
        rows = [row for id, row in self.rows.items() if first <= id <= last]
        return [{one.asked.group for one in (row, row.successor) if one} for row in rows]

    def claim(
        self, limit: int, lease_ms: int, tight: bool, trigger: Trigger = Trigger.TAKE, most: int = 0, at_once: int = 500
    ) -> tuple[list[str], int, int]:
        """Ids leased, how many died, backlog; `tight` where the bytes allow but one task.

        Of one kind `most` may be handed over and not begun, where that is not 0: each for twice as long.
        """
        _, died = self._take_back()
        self._woken = False  # who claims and leaves something that waits comes again
        leased: list[str] = []
        self._stop_waking()
        if self.paused:
            self.tell()
            self._woken = False
            return leased, died, 0
        free = most - self._out()
        if self.waiting:
            free = self._whole_events(free, most, limit)
            self.most = most or self.most
        self._make_due_again(min(limit, free) if most else limit * self.wake)
        for id in self._due():
            row = self.rows[id]
            if len(leased) == limit:
                break
            if 0 < row.deadline <= self.now:
                self._remember(row, Run(row.run, 0, 0, self.now, "expired", "past its deadline"))
                row.status, row.ended = S.DEAD, self.now
                died += 1
            elif most and row.asked.kind == HANDED and free <= 0:
                self.waiting.discard((row.due, row.aside, id))
                row.aside, self.most = self.now + 900_000, most
                self.waiting.add((row.due, row.aside, id))
            elif leased and tight:
                break
            else:
                handed = bool(most) and row.asked.kind == HANDED
                free -= handed
                self._lease(row, 2 * lease_ms if handed else lease_ms, trigger)
                row.handed = handed
                row.ahead = not handed and len(leased) >= at_once
                leased.append(id)
        self._stop_waking()
        self.tell()
        self._woken = False
        return leased, died, len(self._due())

    @property
    def fires_at(self) -> int:
        """The instant at which a schedule fires."""
        return NEVER

    def tell(self) -> None:
        """Tell schedules of what has ended."""

    def begin(self, id: str, token: int, lease_ms: int) -> tuple[int, int]:
        """The run that begins, and the end of its lease; 0 and 0 where it is lost."""
        row = self._held(id, token)
        if not row or not row.handed:
            return 0, 0
        expires = 0 < row.deadline <= self.now
        if expires:
            self._remember_run(row, "expired", "past its deadline")
            row.ended, row.last = self.now, None
        if expires or row.successor:
            row.status = S.DEAD if expires else S.SCHEDULED
            self._end_delivery(row)
            self._succeed(id, row)
            return 0, 0
        row.delivery, row.token, row.claimed, row.lease_end = token, self._draw(), self.now, self.now + lease_ms
        self._free(row)
        self._note_busy(TARGET, row.lease_end)
        self._note_busy(HANDED, row.lease_end)
        return row.run, row.lease_end

    def _out(self) -> int:
        return sum(row.handed for row in self.rows.values())

    def _free(self, row: Row) -> None:
        row.handed = False
        if not self.wake and self._has_room():
            self.wake = self._woken = True

    def _end_delivery(self, row: Row) -> None:
        row.run -= row.handed
        if row.handed:
            self._free(row)

    @staticmethod
    def _whole_events(free: int, most: int, limit: int) -> int:
        event = max(1, min(most // 2, MAX_TASKS))
        return min(free, limit) // min(event, limit) * min(event, limit) if free >= event else 0

    def _has_room(self) -> bool:
        event = max(1, min(self.most // 2, MAX_TASKS))
        return bool(self.waiting) and self._out() <= self.most - max(event, self.most // 10)

    def _stop_waking(self) -> None:
        self.wake = self.wake and self._has_room()

    def _make_due_again(self, count: int) -> None:
        for one in sorted(self.waiting):
            if count <= 0:
                break
            self.waiting.remove(one)
            row = self.rows.get(one[2])
            if row and row.status == S.SCHEDULED and row.aside == one[1]:
                row.aside, count = 0, count - 1

    def settle(self, s: Settlement, token: int) -> Settled:
        row = self.rows.get(s.id)
        if not row:
            return Settled.STALE
        if not self._may_end(row, s.ending, token):
            return self._settled_before(row, s.ending, token)
        if s.ending == Ending.UNDELIVERED:
            self._note_busy(TARGET, self.now + 60_000)
            answer = self._undelivered(row, s.detail, strike=False)
        else:
            answer = self._end(row, s)
        row.last, row.ended = (s.ending, answer), self.now
        self._succeed(s.id, row)
        self._made_due |= self.rows[s.id].status == S.SCHEDULED and self.rows[s.id].due <= self.now
        return answer

    def _may_end(self, row: Row, ending: Ending, token: int) -> bool:
        if row.status != S.LEASED:
            return False
        return row.token == token and (ending != Ending.UNDELIVERED or row.handed)

    def _note_busy(self, name: str, until_at: int) -> None:
        """Until when a target, or whatever has a kind, counts as busy: an end that is little later is not noted."""
        if until_at - self.busy[name] > (until_at - self.now) / 6:
            self.busy[name] = until_at

    def _undelivered(self, row: Row, detail: str, *, soon: bool = False, strike: bool = True) -> Settled:
        """A delivery that was not begun; no strike is one that its target was too busy for."""
        outcome, longest = UNUSED[strike], (30_000, 300_000)[strike]
        self._bring_last(row, outcome)
        last = row.log[-1] if row.log else None
        times = 1 + (last.times if isinstance(last, Run) and last.outcome == outcome else 0)
        is_last = strike and times >= 20
        self._remember_run(row, outcome, f"undelivered: {detail}" if is_last else detail)
        expires = not is_last and 0 < row.deadline <= self.now
        if expires:
            self._remember_run(row, "expired", "past its deadline")
        self._end_delivery(row)
        if is_last or expires:
            row.status, row.ended = S.DEAD, self.now
            return Settled.DEAD
        row.status, row.aside, delays = S.SCHEDULED, 0, times - soon
        if delays:
            row.due = self.now + min(1_000 * 2 ** (delays - 1), longest)
        return Settled.RELEASED

    def _bring_last(self, row: Row, outcome: str) -> None:
        """Where a log ends in both kinds of deliveries of one run, those of this kind come last."""
        if len(row.log) >= 2:
            before, last = row.log[-2:]
            both = isinstance(before, Run) and isinstance(last, Run) and before.run == last.run == row.run
            if both and before.outcome == outcome and last.outcome in UNUSED and last.outcome != outcome:
                row.log = [*row.log[:-2], last, before]

    def extend(self, id: str, token: int, lease_ms: int) -> int:
        row = self._held(id, token)
        if row:
            row.lease_end, row.ahead = self.now + lease_ms, False
            if row.delivery:
                self._note_busy(row.asked.kind, row.lease_end)
        return self.now + lease_ms if row else 0

    def save(self, id: str, token: int, state: str) -> bool:
        row = self._held(id, token)
        if row:
            row.state, row.ahead = state, False
        return row is not None

    def move(self, move: Move) -> Reply:
        row = self.rows.get(move.id)
        if not row:
            return R.ABSENT
        if not {S.SCHEDULED: True, S.LEASED: move.force, S.DONE: move.revive}.get(row.status, False):
            return Reply(row.status.value)
        due = self._instant(move.due_at, move.delay_ms)
        deadline = self._moved_deadline(row.successor or row, due)
        if deadline is None:
            return R.PAST_DEADLINE
        stays = row.status == S.SCHEDULED and not row.run and row.due == due
        row = self._taken(row)
        if row.run:
            row.generation, row.run, row.attempt = self._draw(), 0, 1
            self._take_token(row)
        row.result, row.state = "", row.state if move.state is None else move.state
        before, last = row.due, row.log[-1] if row.log else None
        if stays and isinstance(last, Change) and last.action == Action.MOVED:
            row.log, before = row.log[:-1], last.due_before
        self._remember(row, Change(self.now, Action.MOVED, move.by, before, due))
        row.due, row.deadline = due, deadline
        self._schedule(move.id, row)
        return R.OK

    def _moved_deadline(self, row: Row, due: int) -> int | None:
        """The deadline of a task that is due at another time; None where it would be dead before it could run."""
        deadline = row.deadline
        if deadline and row.asked.deadline_at is None:
            deadline += due - _counted_from(row)
        return deadline if not deadline or deadline > max(due, self.now) else None

    def _taken(self, row: Row) -> Row:
        """The task as it is, and one that runs as it is once it is taken from its worker."""
        if row.status != S.LEASED:
            return row
        self._remember_run(row, "taken", "")
        self._end_delivery(row)
        return self._replacing(row.successor, row) if row.successor else row

    def cancel(self, id: str, force: bool, by: str = "") -> Reply:
        row = self.rows.get(id)
        if not row:
            return R.ABSENT
        if row.status == S.DEAD:
            del self.rows[id]
        elif row.status == S.SCHEDULED or (row.status == S.LEASED and force):
            row = self.rows[id] = self._taken(row)
            self._remember(row, Change(self.now, Action.CANCELLED, by, row.due))
            self._take_token(row)
            row.status, row.ended = S.CANCELLED, self.now
        else:
            return Reply(row.status.value)
        return R.OK

    def bulk(self, asked: Bulk, by: str = "") -> int:
        """How many tasks are counted, deleted or cancelled: the first of them in their section's order."""
        [status] = asked.statuses
        chosen = sorted((*self._spot(row, asked.group), id) for id, row in self.rows.items() if row.status == status)
        meant = [id for *_, id in chosen if self._is_meant(self.rows[id], asked)][: asked.limit]
        for id in meant:
            if asked.act == Act.DELETE:
                del self.rows[id]
            elif asked.act == Act.CANCEL:
                self.cancel(id, True, by)
        return len(meant)

    def _spot(self, row: Row, group: str) -> tuple[int, ...]:
        live = {S.SCHEDULED: row.looked_at, S.LEASED: row.lease_end}
        return () if group else (live.get(row.status, row.ended),)

    def _is_meant(self, row: Row, asked: Bulk) -> bool:
        since = row.created if row.status in (S.SCHEDULED, S.LEASED) else row.ended
        fits = asked.kind in ("", row.asked.kind) and asked.group in ("", row.asked.group)
        return fits and since <= self.now - asked.min_age_ms

    def replay(self, id: str, by: str = "") -> Reply:
        row = self.rows.get(id)
        if not row:
            return R.ABSENT
        if row.status != S.DEAD:
            return Reply(row.status.value)
        self._remember(row, Change(self.now, Action.REPLAYED, by, row.due, self.now))
        row.attempt, row.deadline, row.due = 1, 0, self.now
        self._schedule(id, row)
        return R.OK

    def pause(self, paused: bool) -> None:
        self._made_due |= self.paused and not paused
        self.paused = paused

    def sweep(self, retention_ms: int) -> tuple[int, int, int]:
        """How many leases were taken back, how many tasks died of it, how many were forgotten."""
        if 0 < self.spared <= self.now and not self._lapsed():
            self.spared = 0
        reclaimed, died = self._take_back()
        finished = [id for id, row in self.rows.items() if row.status in (S.DONE, S.CANCELLED)]
        old = [id for id in finished if self.rows[id].ended <= self.now - retention_ms]
        for id in old:
            del self.rows[id]
        self._forget_strays()
        return reclaimed, died, len(old)

    def _forget_strays(self) -> None:
        """Forget what waits no more: it ended, was moved, replaced or taken since it was put aside."""
        aside = {(id, row.looked_at) for id, row in self.rows.items() if row.status == S.SCHEDULED}
        strays = {one for one in self.waiting if (one[2], one[1]) not in aside}
        self.waiting -= strays
        self.wake = self.wake and bool(self.waiting or not strays)

    def hang(self) -> int:
        """Where the bell hangs after a verb."""
        instants = [row.lease_end for row in self.rows.values() if row.status == S.LEASED]
        if not self.paused:
            instants += [row.looked_at for row in self.rows.values() if row.status == S.SCHEDULED]
            instants += [self.now] if self.wake else []
            instants += [self.fires_at] if self.fires_at < NEVER else []
        at = min(instants, default=0)
        if 0 < at <= self.now:
            about_to_ring = self.now <= self.bell <= self.now + 1_000
            fresh = self._made_due or self._woken
            at = self.now + 1 if fresh else self.bell if about_to_ring else self.now + 1_000
        self.bell, self._made_due, self._woken = at, False, False
        return at

    def stats(self) -> Stats:
        counts = {status: sum(row.status == status for row in self.rows.values()) for status in Status}
        dues = [row.looked_at for row in self.rows.values() if row.status == S.SCHEDULED]
        waits = [(self.rows.get(id), due) for due, _, id in self.waiting]
        dues += [due for row, due in waits if row and row.status == S.SCHEDULED and row.due == due]
        oldest = min(dues, default=0)
        done = counts[S.DONE] + counts[S.CANCELLED]
        scheduled, leased, dead = counts[S.SCHEDULED], counts[S.LEASED], counts[S.DEAD]
        settings, lapsed = QueueSettings(paused=self.paused), self._last_hour().values()
        runs, at_target = sum(runs for runs, _ in lapsed), sum(at_target for _, at_target in lapsed)
        whole = Stats(scheduled, leased, done, dead, oldest, self.bell, settings, self.now)
        return whole._replace(lapsed=runs, lapsed_at_target=at_target)

    def next_at(self) -> int:
        """The first instant at which a task comes due or a lease ends; 0 for none."""
        instants = [row.lease_end for row in self.rows.values() if row.status == S.LEASED]
        instants += [self.fires_at] if self.fires_at < NEVER else []
        return min([*instants, *(row.looked_at for row in self.rows.values() if row.status == S.SCHEDULED)], default=0)

    def group(self, group: str) -> list[str]:
        """The ids that stand in a group, by themselves or by what waits for their lease to end."""
        rows = sorted(self.rows.items())
        return [id for id, r in rows if group in (r.asked.group, r.successor.asked.group if r.successor else "")]

    def task(self, id: str) -> Task | None:
        """The task as a store shows it, with this model's numbers for fences and no nonce in its token."""
        row = self.rows.get(id)
        if not row:
            return None
        asked, leased = row.asked, row.status == S.LEASED
        return Task(
            id=id,
            queue=asked.queue,
            tenant=asked.tenant,
            kind=asked.kind,
            group=asked.group,
            status=row.status,
            payload_json=asked.payload,
            state_json=row.state,
            result_json=row.result,
            due_at=row.due,
            created_at=row.created,
            deadline_at=row.deadline,
            generation=row.generation,
            run=row.run,
            attempt=row.attempt,
            retry=asked.retry,
            token=str(row.token or ""),
            claimed_at=row.claimed,
            log=tuple(row.log),
            lease_expires_at=row.lease_end if leased else 0,
            by=row.by,
            notify=asked.notify,
            trigger=row.trigger,
            forgotten=row.forgotten,
            target=TARGET if leased and row.handed else "",
            delivery=str(row.delivery) if leased and row.delivery else "",
        )

    def _fresh(self, new: NewTask) -> Row:
        due = self._instant(new.due_at, new.delay_ms)
        return Row(new, due, self.now, deadline_of(new, due), self._draw(), new.state, by=new.by)

    def _replacing(self, row: Row, old: Row) -> Row:
        row.log, row.forgotten, row.came = old.log, old.forgotten, Action.REPLACED
        row.occurs = old.occurs
        self._remember(row, Change(old.created, old.came, old.by, 0, old.due))
        return row

    def _debounced(self, new: NewTask, old: Row) -> Row:
        row = self._fresh(new)
        row.created = old.created
        row.due = max(old.due, min(row.due, old.created + new.max_wait_ms))
        row.deadline = deadline_of(new, row.due)
        row.log, row.forgotten, row.by, row.occurs = old.log, old.forgotten, old.by, old.occurs
        self._remember(row, Change(self.now, Action.DEBOUNCED, new.by, old.due, row.due))
        return row

    def _schedule(self, id: str, row: Row) -> None:
        row.status, row.successor, row.aside = S.SCHEDULED, None, 0
        self.rows[id] = row
        self._made_due |= row.due <= self.now

    def _due(self) -> list[str]:
        due = [(r.looked_at, id) for id, r in self.rows.items() if r.status == S.SCHEDULED and r.looked_at <= self.now]
        return [id for _, id in sorted(due)]

    def _lease(self, row: Row, lease_ms: int, trigger: Trigger) -> None:
        row.status, row.run, row.token = S.LEASED, row.run + 1, self._draw()
        row.claimed, row.lease_end, row.trigger = self.now, self.now + lease_ms, trigger
        row.aside = row.delivery = 0

    def _lapsed(self) -> list[str]:
        return [id for id, r in self.rows.items() if r.status == S.LEASED and r.lease_end <= self.now]

    def _spare(self, lapsed: list[str]) -> list[str]:
        """Those that did not lapse unattended; the others get five seconds more, once."""
        goes_on = self.now < self.spared <= self.now + 5_000
        known, ends_at = self.spared, self.spared if goes_on else self.now + 5_000
        spared = [id for id in lapsed if self.now - 2_000 > self.rows[id].lease_end != known]
        for id in spared:
            self.rows[id].lease_end = self.spared = ends_at
        return [id for id in lapsed if id not in spared]

    def _take_back(self) -> tuple[int, int]:
        lapsed = self._spare(self._lapsed())
        died = 0
        for id in lapsed:
            row = self.rows[id]
            row.last = None
            if not (row.handed or row.ahead):
                self._count_lapse(at_target=bool(row.delivery))
            due = self._due_after_lapse(row)
            if row.successor:
                self._end_delivery(row)
            elif row.handed:
                strike = max(self.busy.values()) < row.claimed
                not_begun = f"handed over to {TARGET}, but the function did not begin it"
                detail = not_begun if strike else f"waited for {TARGET}, which was busy with other tasks"
                died += self._undelivered(row, detail, strike=strike) == Settled.DEAD
            elif row.ahead:
                detail = "claimed ahead by a worker that ended before it began"
                died += self._undelivered(row, detail, soon=True) == Settled.DEAD
            else:
                self._remember_run(row, "lapsed", "the lease lapsed")
                died += not self._spend_attempt(row, due)
            self._succeed(id, row)
        return len(lapsed), died

    def _count_lapse(self, *, at_target: bool) -> None:
        slot = self.now // SLOT_MS
        self.lapsed = self._last_hour()
        runs, at_targets = self.lapsed.get(slot, (0, 0))
        self.lapsed[slot] = runs + 1, at_targets + at_target

    def _last_hour(self) -> dict[int, tuple[int, int]]:
        slot = self.now // SLOT_MS
        return {at: runs for at, runs in self.lapsed.items() if slot - SLOTS < at <= slot}

    def _due_after_lapse(self, row: Row) -> int:
        """At once after a first lapse, by the policy after the next: without jitter here."""
        last = row.log[-1] if row.log else None
        if not isinstance(last, Run) or last.outcome != "lapsed":
            return row.lease_end
        policy = row.asked.retry
        return self.now + int(min(policy.backoff_ms * policy.factor ** (row.attempt - 1), policy.max_backoff_ms))

    def _end(self, row: Row, s: Settlement) -> Settled:
        due, expired = self._instant(s.due_at, s.delay_ms), 0 < row.deadline <= self.now
        if s.ending in (Ending.AGAIN, Ending.RETRY) and s.state is not None:
            row.state = s.state
        detail = {Ending.RETRY: s.detail, Ending.DROP: s.detail, Ending.RELEASE: s.detail}.get(s.ending, "")
        self._remember_run(row, s.ending.value, detail)
        if s.ending == Ending.AGAIN and expired:
            self._remember_run(row, "expired", "past its deadline")
        if s.ending == Ending.RELEASE:
            self._end_delivery(row)
        elif row.handed:
            self._free(row)
        row.aside = 0
        if s.ending == Ending.RETRY:
            return Settled.RETRIED if self._spend_attempt(row, due) else Settled.DEAD
        if s.ending == Ending.DONE:
            row.status, row.result = S.DONE, s.result
        elif s.ending == Ending.DROP or (s.ending == Ending.AGAIN and expired):
            row.status = S.DEAD
            return Settled.DEAD
        else:
            row.status, row.due = S.SCHEDULED, due
            row.attempt = 1 if s.ending == Ending.AGAIN else row.attempt
        return SETTLED[s.ending]

    def _spend_attempt(self, row: Row, due: int) -> bool:
        if row.attempt >= row.asked.retry.max_attempts or 0 < row.deadline <= self.now:
            row.status, row.ended = S.DEAD, self.now
            return False
        row.status, row.attempt, row.due, row.aside = S.SCHEDULED, row.attempt + 1, due, 0
        return True

    def _succeed(self, id: str, row: Row) -> None:
        if row.successor:
            successor = self._replacing(row.successor, row)
            successor.token, successor.last, successor.trigger = row.token, row.last, row.trigger
            self.rows[id] = successor

    def _settled_before(self, row: Row, ending: Ending, token: int) -> Settled:
        if row.status == S.LEASED and row.token == token:
            return Settled.STALE
        if row.token == token:
            return row.last[1] if row.last and row.last[0] == ending else Settled.STALE
        runs = [entry for entry in row.log if isinstance(entry, Run) and entry.outcome not in UNUSED]
        outcomes = [run.outcome for run in runs if run.fence == token]
        return SETTLED[ending] if outcomes == [ending] else Settled.STALE

    def _held(self, id: str, token: int) -> Row | None:
        row = self.rows.get(id)
        return row if row and row.status == S.LEASED and row.token == token else None

    def _take_token(self, row: Row) -> None:
        row.token, row.claimed, row.last, row.successor, row.trigger = 0, 0, None, None, None

    def _remember_run(self, row: Row, outcome: str, detail: str) -> None:
        late = max(0, row.claimed - row.due)
        self._remember(row, Run(row.run, row.token, row.claimed, self.now, outcome, detail, row.trigger, late))

    def _remember(self, row: Row, entry: Entry) -> None:
        """Bounded by number, for the errors in these tests are short; releases and debounces in a row are one."""
        last = row.log[-1] if row.log else None
        if isinstance(entry, Run) and isinstance(last, Run) and entry.outcome == last.outcome in UNUSED:
            row.log, entry = row.log[:-1], replace(entry, times=min(last.times + 1, 255))
        if isinstance(entry, Change) and isinstance(last, Change) and entry.action == last.action == Action.DEBOUNCED:
            row.log, entry = (
                row.log[:-1],
                replace(entry, times=min(last.times + 1, 255), due_before=last.due_before),
            )
        row.forgotten += len(row.log) == LOG_LENGTH
        row.log = [*row.log, entry][-LOG_LENGTH:]

    def _draw(self) -> int:
        self.fence += 1
        return self.fence

    def _instant(self, at: int | None, delay_ms: int) -> int:
        return self.now + delay_ms if at is None else at


def _counted_from(row: Row) -> int:
    """What a deadline given as a duration counts from: what a caller set last, else the oldest run's due time."""
    due = 0
    for entry in row.log:
        if isinstance(entry, Run):
            due = due or (entry.claimed_at and entry.claimed_at - entry.late_ms)
        elif entry.action in (Action.ADDED, Action.REPLACED):
            due = 0
        elif entry.action != Action.CANCELLED:
            due = entry.due_at
    return due or row.due


def deadline_of(new: NewTask, due: int) -> int:
    if new.deadline_at is not None:
        return new.deadline_at
    return 0 if new.deadline_ms is None else due + new.deadline_ms
