"""The ledger in plain Python, close to the design's table: what every store must answer, written without one."""

from dataclasses import dataclass, field

from duecourse.domain.history import LOG_LENGTH, Change, Deed, Door, Entry, Run
from duecourse.domain.outcomes import Ending, Settlement
from duecourse.domain.queues import QueueSettings, Stats
from duecourse.domain.task import NewTask, OnDuplicate, Status, Task
from duecourse.ports.store import Move, Reply, Settled
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
}


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
    came: Deed = Deed.ADDED
    by: str = ""
    door: Door | None = None
    successor: "Row | None" = None


class Model:
    """One shard."""

    def __init__(self, clock: HandClock) -> None:
        self.clock = clock
        self.rows: dict[str, Row] = {}
        self.fence = 0
        self.paused = False
        self.bell = 0
        self._made_due = False

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
            old.successor = self._fresh(new)
        elif reply == R.REPLACED:
            self._schedule(new.id, self._replacing(self._fresh(new), old))
        elif reply == R.DEBOUNCED:
            self._schedule(new.id, self._debounced(new, old))
        return reply

    def _groups(self, first: str, last: str) -> list[set[str]]:
        """The groups of each task whose id is within those two: its own, and its successor's."""
        rows = [row for id, row in self.rows.items() if first <= id <= last]
        return [{one.asked.group for one in (row, row.successor) if one} for row in rows]

    def claim(self, limit: int, lease_ms: int, tight: bool, door: Door = Door.TAKE) -> tuple[list[str], int, int]:
        """Ids leased, how many died, backlog; `tight` where the bytes allow but one task."""
        _, died = self._take_back()
        leased: list[str] = []
        if self.paused:
            return leased, died, 0
        for id in self._due():
            row = self.rows[id]
            if len(leased) == limit:
                break
            if 0 < row.deadline <= self.now:
                self._remember(row, Run(row.run, 0, 0, self.now, "expired", "past its deadline"))
                row.status, row.ended = S.DEAD, self.now
                died += 1
            elif leased and tight:
                break
            else:
                self._lease(row, lease_ms, door)
                leased.append(id)
        return leased, died, len(self._due())

    def settle(self, s: Settlement, token: int) -> Settled:
        row = self.rows.get(s.id)
        if not row:
            return Settled.STALE
        if row.status != S.LEASED or row.token != token:
            return self._settled_before(row, s.ending, token)
        answer = self._end(row, s)
        row.last, row.ended = (s.ending, answer), self.now
        self._succeed(s.id, row)
        self._made_due |= self.rows[s.id].status == S.SCHEDULED and self.rows[s.id].due <= self.now
        return answer

    def extend(self, id: str, token: int, lease_ms: int) -> int:
        row = self._held(id, token)
        if row:
            row.lease_end = self.now + lease_ms
        return self.now + lease_ms if row else 0

    def save(self, id: str, token: int, state: str) -> bool:
        row = self._held(id, token)
        if row:
            row.state = state
        return row is not None

    def move(self, move: Move) -> Reply:
        row = self.rows.get(move.id)
        if not row:
            return R.ABSENT
        if not {S.SCHEDULED: True, S.LEASED: move.force, S.DONE: move.revive}.get(row.status, False):
            return Reply(row.status.value)
        due = self._instant(move.due_at, move.delay_ms)
        stays = row.status == S.SCHEDULED and not row.run and row.due == due
        if row.status == S.LEASED:
            self._remember_run(row, "taken", "")
        if row.run:
            row.generation, row.run, row.attempt = self._draw(), 0, 1
            self._take_token(row)
        row.result, row.state = "", row.state if move.state is None else move.state
        if not stays:
            self._remember(row, Change(self.now, Deed.MOVED, move.by, row.due, due))
        row.due = due
        self._schedule(move.id, row)
        return R.OK

    def cancel(self, id: str, force: bool, by: str = "") -> Reply:
        row = self.rows.get(id)
        if not row:
            return R.ABSENT
        if row.status == S.DEAD:
            del self.rows[id]
        elif row.status == S.SCHEDULED or (row.status == S.LEASED and force):
            if row.status == S.LEASED:
                self._remember_run(row, "taken", "")
            self._remember(row, Change(self.now, Deed.CANCELLED, by, row.due))
            self._take_token(row)
            row.status, row.ended = S.CANCELLED, self.now
        else:
            return Reply(row.status.value)
        return R.OK

    def replay(self, id: str, by: str = "") -> Reply:
        row = self.rows.get(id)
        if not row:
            return R.ABSENT
        if row.status != S.DEAD:
            return Reply(row.status.value)
        self._remember(row, Change(self.now, Deed.REPLAYED, by, row.due, self.now))
        row.attempt, row.deadline, row.due = 1, 0, self.now
        self._schedule(id, row)
        return R.OK

    def pause(self, paused: bool) -> None:
        self._made_due |= self.paused and not paused
        self.paused = paused

    def sweep(self, retention_ms: int) -> tuple[int, int, int]:
        """How many leases were taken back, how many tasks died of it, how many were forgotten."""
        reclaimed, died = self._take_back()
        finished = [id for id, row in self.rows.items() if row.status in (S.DONE, S.CANCELLED)]
        old = [id for id in finished if self.rows[id].ended <= self.now - retention_ms]
        for id in old:
            del self.rows[id]
        return reclaimed, died, len(old)

    def hang(self) -> int:
        """Where the bell hangs after a verb."""
        instants = [row.lease_end for row in self.rows.values() if row.status == S.LEASED]
        if not self.paused:
            instants += [row.due for row in self.rows.values() if row.status == S.SCHEDULED]
        at = min(instants, default=0)
        if 0 < at <= self.now:
            about_to_ring = self.now <= self.bell <= self.now + 1_000
            at = self.now + 1 if self._made_due else self.bell if about_to_ring else self.now + 1_000
        self.bell, self._made_due = at, False
        return at

    def stats(self) -> Stats:
        counts = {status: sum(row.status == status for row in self.rows.values()) for status in Status}
        oldest = min((row.due for row in self.rows.values() if row.status == S.SCHEDULED), default=0)
        done = counts[S.DONE] + counts[S.CANCELLED]
        scheduled, leased, dead = counts[S.SCHEDULED], counts[S.LEASED], counts[S.DEAD]
        return Stats(scheduled, leased, done, dead, oldest, self.bell, QueueSettings(paused=self.paused), self.now)

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
            door=row.door,
            forgotten=row.forgotten,
        )

    def _fresh(self, new: NewTask) -> Row:
        due = self._instant(new.due_at, new.delay_ms)
        return Row(new, due, self.now, _deadline(new, due), self._draw(), new.state, by=new.by)

    def _replacing(self, row: Row, old: Row) -> Row:
        row.log, row.forgotten, row.came = old.log, old.forgotten, Deed.REPLACED
        self._remember(row, Change(old.created, old.came, old.by, 0, old.due))
        return row

    def _debounced(self, new: NewTask, old: Row) -> Row:
        row = self._fresh(new)
        row.created = old.created
        row.due = max(old.due, min(row.due, old.created + new.max_wait_ms))
        row.deadline = _deadline(new, row.due)
        row.log, row.forgotten, row.by = old.log, old.forgotten, old.by
        self._remember(row, Change(self.now, Deed.DEBOUNCED, new.by, old.due, row.due))
        return row

    def _schedule(self, id: str, row: Row) -> None:
        row.status, row.successor = S.SCHEDULED, None
        self.rows[id] = row
        self._made_due |= row.due <= self.now

    def _due(self) -> list[str]:
        due = [(r.due, id) for id, r in self.rows.items() if r.status == S.SCHEDULED and r.due <= self.now]
        return [id for _, id in sorted(due)]

    def _lease(self, row: Row, lease_ms: int, door: Door) -> None:
        row.status, row.run, row.token = S.LEASED, row.run + 1, self._draw()
        row.claimed, row.lease_end, row.door = self.now, self.now + lease_ms, door

    def _take_back(self) -> tuple[int, int]:
        lapsed = [id for id, r in self.rows.items() if r.status == S.LEASED and r.lease_end <= self.now]
        died = 0
        for id in lapsed:
            row = self.rows[id]
            row.last = None
            if not row.successor:
                self._remember_run(row, "lapsed", "the lease lapsed")
                died += not self._spend_attempt(row, row.due)
            self._succeed(id, row)
        return len(lapsed), died

    def _end(self, row: Row, s: Settlement) -> Settled:
        due, expired = self._instant(s.due_at, s.delay_ms), 0 < row.deadline <= self.now
        if s.ending in (Ending.AGAIN, Ending.RETRY) and s.state is not None:
            row.state = s.state
        detail = {Ending.RETRY: s.detail, Ending.DROP: s.detail, Ending.RELEASE: s.detail}.get(s.ending, "")
        if s.ending == Ending.AGAIN and expired:
            detail = "past its deadline"
        self._remember_run(row, s.ending.value, detail)
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
        row.status, row.attempt, row.due = S.SCHEDULED, row.attempt + 1, due
        return True

    def _succeed(self, id: str, row: Row) -> None:
        if row.successor:
            successor = self._replacing(row.successor, row)
            successor.token, successor.last, successor.door = row.token, row.last, row.door
            self.rows[id] = successor

    def _settled_before(self, row: Row, ending: Ending, token: int) -> Settled:
        if row.token == token:
            return row.last[1] if row.last and row.last[0] == ending else Settled.STALE
        runs = [entry for entry in row.log if isinstance(entry, Run) and entry.outcome != Ending.RELEASE]
        outcomes = [run.outcome for run in runs if run.fence == token]
        return SETTLED[ending] if outcomes == [ending] else Settled.STALE

    def _held(self, id: str, token: int) -> Row | None:
        row = self.rows.get(id)
        return row if row and row.status == S.LEASED and row.token == token else None

    def _take_token(self, row: Row) -> None:
        row.token, row.claimed, row.last, row.successor, row.door = 0, 0, None, None, None

    def _remember_run(self, row: Row, outcome: str, detail: str) -> None:
        late = max(0, row.claimed - row.due)
        self._remember(row, Run(row.run, row.token, row.claimed, self.now, outcome, detail, row.door, late))

    def _remember(self, row: Row, entry: Entry) -> None:
        """Bounded by number, for the errors in these tests are short; releases and debounces in a row are one."""
        last = row.log[-1] if row.log else None
        if isinstance(entry, Run) and isinstance(last, Run) and entry.outcome == last.outcome == "release":
            row.log, entry = row.log[:-1], entry._replace(times=min(last.times + 1, 255))
        if isinstance(entry, Change) and isinstance(last, Change) and entry.deed == last.deed == Deed.DEBOUNCED:
            row.log, entry = (
                row.log[:-1],
                entry._replace(times=min(last.times + 1, 255), due_before=last.due_before),
            )
        row.forgotten += len(row.log) == LOG_LENGTH
        row.log = [*row.log, entry][-LOG_LENGTH:]

    def _draw(self) -> int:
        self.fence += 1
        return self.fence

    def _instant(self, at: int | None, delay_ms: int) -> int:
        return self.now + delay_ms if at is None else at


def _deadline(new: NewTask, due: int) -> int:
    if new.deadline_at is not None:
        return new.deadline_at
    return 0 if new.deadline_ms is None else due + new.deadline_ms
