"""The ledger's model with a schedule and a backfill: occurrences are rows like others, and it learns of their ends."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from duecourse.ledger.operation_types import Fired, Move, Put, Reply
from duecourse.ledger.queue import Stats
from duecourse.ledger.schedule import NEVER, Became, Occurrence, Overlap, Progress, Schedule
from duecourse.ledger.task import NewTask, Status
from tests.support.clock import HandClock
from tests.support.ledger_model import Model, Row, deadline_of

LIVE = (Status.SCHEDULED, Status.LEASED)
ENDED = {Status.DONE: Became.DONE, Status.DEAD: Became.DEAD, Status.CANCELLED: Became.CANCELLED}


@dataclass
class Series:
    """One schedule; `live` are the ids of occurrences that have not ended, `waits` that of the one that waits."""

    schedule: Schedule
    progress: Progress
    created: int
    live: list[str] = field(default_factory=list)
    waits: str = ""


class SeriesModel(Model):
    """One shard with at most one schedule, and one backfill of it."""

    def __init__(self, clock: HandClock) -> None:
        super().__init__(clock)
        self.series: Series | None = None
        self.fill: Series | None = None
        self._known: set[str] = set()

    @property
    def planned(self) -> list[Series]:
        """The schedule and the backfill, those that are there."""
        return [one for one in (self.series, self.fill) if one]

    @property
    def fires_at(self) -> int:
        """When the first of them fires, NEVER where none does or is there."""
        return min((one.progress.next_at for one in self.planned), default=NEVER)

    def stats(self) -> Stats:
        fires_at = self.fires_at if self.fires_at < NEVER else 0
        return super().stats()._replace(schedules=len(self.planned), fires_at=fires_at)

    def plan(self, schedule: Schedule, progress: Progress) -> Put:
        if self.fill if schedule.of else self.series:
            return Put.KEPT
        self._draw()
        made = Series(schedule, progress, self.series.created if schedule.of and self.series else self.now)
        if schedule.of:
            self.fill = made
        else:
            self.series = made
        self._made_due |= progress.next_at <= self.now
        return Put.CREATED

    def drop(self) -> bool:
        one, self.series = self.series, None
        if one and self._waiting(one):
            self.cancel(one.waits, True, "schedule")
        return one is not None

    def fire(self, one: Series, task: NewTask, progress: Progress) -> Fired:
        home = self.series
        if one is not self.fill:
            assert home
            self._fire(home, one, task, progress)
        elif not home or home.created != one.created:
            self.fill = None
            return Fired.STALE
        elif one.schedule.overlap is Overlap.QUEUE and (found := self._look(home)):
            age = self.now - self.rows[found[-1]].created
            one.progress = replace(one.progress, next_at=self.now + min(max(age // 10, 1_000), 60_000))
            return Fired.STALE
        else:
            self._fire(home, one, task, progress)
            self.fill = one if progress.nominal else None
        return Fired.FIRED

    def _fire(self, home: Series, one: Series, task: NewTask, progress: Progress) -> None:
        """Add an occurrence of `home` by the step of `one`, its backfill or itself."""
        before = {entry.nominal: entry.became for entry in one.progress.recent}
        ended = {nominal: became for nominal, became in before.items() if became in ENDED.values()}
        one.progress = _with_ends(progress, ended)
        row, overlap = self.rows.get(task.id), one.schedule.overlap
        self._draw()
        if row:
            if row.occurs and row.status in LIVE and home.waits != task.id:
                _add_live(home, task.id)
            return
        found = [] if overlap is Overlap.ALLOW else self._look(home)
        if found and overlap is Overlap.SKIP:
            self._note(one, task.id, Became.SKIPPED)
            _count_skipped(home)
            return
        if found and overlap is Overlap.QUEUE:
            others = self._waiting(home)
            self._add(task, NEVER)
            if others:
                self._stop(home, home.waits, Became.SKIPPED)
                _count_skipped(home)
            home.waits = task.id
            return
        self._add(task, task.due_at or 0)
        if overlap is Overlap.REPLACE:
            for id in [*found, *([home.waits] if self._waiting(home) else [])]:
                self._stop(home, id, Became.CANCELLED)
        _add_live(home, task.id)

    def add(self, new: NewTask) -> Reply:
        return self._reviving(new.id, Status.DEAD, super().add, new)

    def move(self, move: Move) -> Reply:
        return self._reviving(move.id, Status.DONE, super().move, move)

    def replay(self, id: str, by: str = "") -> Reply:
        return self._reviving(id, Status.DEAD, super().replay, id, by)

    def _reviving(self, id: str, ended: Status, verb: Callable[..., Reply], *asked: object) -> Reply:
        """Do what may have an occurrence that had ended live again; its schedule notes that."""
        before = self.rows.get(id)
        had_ended = before is not None and before.status is ended
        reply = verb(*asked)
        if self.series and had_ended and self._is_live(id):
            self._note(self.series, id, Became.LIVE)
            _add_live(self.series, id)
        return reply

    def hang(self) -> int:
        self.tell()
        return super().hang()

    def tell(self) -> None:
        """Tell the schedule of the occurrences that have ended since."""
        live = {id for id, row in self.rows.items() if row.occurs and row.status in LIVE}
        one = self.series
        for id in sorted(self._known - live):
            if one:
                row = self.rows.get(id)
                self._note(one, id, ENDED[row.status] if row else Became.CANCELLED)
                self._strike(one, id)
        if one and self._known - live:
            self._release(one)
        self._known = {id for id, row in self.rows.items() if row.occurs and row.status in LIVE}

    def _add(self, task: NewTask, due: int) -> None:
        row = Row(task, due, self.now, deadline_of(task, due), self._draw(), "", by=task.by)
        row.occurs = True
        self._schedule(task.id, row)

    def _stop(self, one: Series, id: str, became: Became) -> None:
        self.cancel(id, True, "schedule")
        self._known.discard(id)
        self._note(one, id, became)
        self._strike(one, id)

    def _note(self, one: Series, id: str, became: Became) -> None:
        entries = [
            Occurrence(entry.nominal, became) if id == one.schedule.occurrence(entry.nominal, 0).id else entry
            for entry in one.progress.recent
        ]
        one.progress = replace(one.progress, recent=tuple(entries))

    def _strike(self, one: Series, id: str) -> None:
        one.live = [other for other in one.live if other != id]
        one.waits = "" if one.waits == id else one.waits

    def _is_live(self, id: str) -> bool:
        row = self.rows.get(id)
        return bool(row and row.occurs and row.status in LIVE)

    def _waiting(self, one: Series) -> bool:
        """True if one waits; one that was moved waits no more."""
        row = self.rows.get(one.waits)
        if row and self._is_live(one.waits) and row.status is Status.SCHEDULED and row.due >= NEVER:
            return True
        if self._is_live(one.waits):
            _add_live(one, one.waits)
        one.waits = ""
        return False

    def _look(self, one: Series) -> list[str]:
        self._waiting(one)
        one.live = [id for id in one.live if self._is_live(id)]
        if not one.live:
            self._release(one)
        return [*one.live]

    def _release(self, one: Series) -> None:
        if one.live or not self._waiting(one):
            return
        row = self.rows[one.waits]
        if row.deadline and row.asked.deadline_at is None:
            row.deadline += self.now - row.due
        row.due, self._woken = self.now, True
        one.live, one.waits = [one.waits], ""


def _add_live(one: Series, id: str) -> None:
    one.live = [*(other for other in one.live if other != id), id]


def _count_skipped(one: Series) -> None:
    one.progress = replace(one.progress, skipped=one.progress.skipped + 1)


def _with_ends(progress: Progress, ended: dict[int, Became]) -> Progress:
    recent = (Occurrence(one.nominal, ended.get(one.nominal, one.became)) for one in progress.recent)
    return replace(progress, recent=tuple(recent))
