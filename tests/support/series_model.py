"""The ledger's model with a schedule: its occurrences are rows like others, and it learns of their ends."""

from dataclasses import dataclass, field

from duecourse.domain.schedule import NEVER, Became, Occurrence, Overlap, Progress, Schedule
from duecourse.domain.task import NewTask, Status
from duecourse.domain.values import replaced
from duecourse.ports.schedules import Put
from tests.support.clock import HandClock
from tests.support.ledger_model import Model, Row, deadline_of

LIVE = (Status.SCHEDULED, Status.LEASED)
ENDED = {Status.DONE: Became.DONE, Status.DEAD: Became.DEAD, Status.CANCELLED: Became.CANCELLED}


@dataclass
class Series:
    """One schedule; `live` are the ids of occurrences that have not ended, `waits` that of the one that waits."""

    schedule: Schedule
    progress: Progress
    live: list[str] = field(default_factory=list)
    waits: str = ""


class SeriesModel(Model):
    """One shard with at most one schedule."""

    def __init__(self, clock: HandClock) -> None:
        super().__init__(clock)
        self.series: Series | None = None
        self._known: set[str] = set()

    @property
    def fires_at(self) -> int:
        """When the schedule fires, NEVER where it does not or is not there."""
        return self.series.progress.next_at if self.series else NEVER

    def plan(self, schedule: Schedule, progress: Progress) -> Put:
        if self.series:
            return Put.KEPT
        self._draw()
        self.series = Series(schedule, progress)
        self._made_due |= progress.next_at <= self.now
        return Put.CREATED

    def drop(self) -> bool:
        one, self.series = self.series, None
        if one and self._waiting(one):
            self.cancel(one.waits, True, "schedule")
        return one is not None

    def fire(self, task: NewTask, progress: Progress) -> None:
        one = self.series
        assert one
        before = {entry.nominal: entry.became for entry in one.progress.recent}
        ended = {nominal: became for nominal, became in before.items() if became in ENDED.values()}
        one.progress = _with_ends(progress, ended)
        row, overlap = self.rows.get(task.id), one.schedule.overlap
        self._draw()
        if row:
            if row.occurs and row.status in LIVE and one.waits != task.id and task.id not in one.live:
                one.live.append(task.id)
            return
        found = [] if overlap is Overlap.ALLOW else self._look(one)
        if found and overlap is Overlap.SKIP:
            self._note(one, task.id, Became.SKIPPED, skipped=1)
            return
        if found and overlap is Overlap.QUEUE:
            others = self._waiting(one)
            self._add(task, NEVER)
            if others:
                self._stop(one, one.waits, Became.SKIPPED, skipped=1)
            one.waits = task.id
            return
        self._add(task, task.due_at or 0)
        if overlap is Overlap.REPLACE:
            for id in [*found, *([one.waits] if self._waiting(one) else [])]:
                self._stop(one, id, Became.CANCELLED)
        one.live.append(task.id)

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

    def _stop(self, one: Series, id: str, became: Became, skipped: int = 0) -> None:
        self.cancel(id, True, "schedule")
        self._known.discard(id)
        self._note(one, id, became, skipped)
        self._strike(one, id)

    def _note(self, one: Series, id: str, became: Became, skipped: int = 0) -> None:
        entries = [
            Occurrence(entry.nominal, became) if id == one.schedule.occurrence(entry.nominal, 0).id else entry
            for entry in one.progress.recent
        ]
        one.progress = replaced(one.progress, recent=tuple(entries), skipped=one.progress.skipped + skipped)

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
        if self._is_live(one.waits) and one.waits not in one.live:
            one.live.append(one.waits)
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


def _with_ends(progress: Progress, ended: dict[int, Became]) -> Progress:
    recent = (Occurrence(one.nominal, ended.get(one.nominal, one.became)) for one in progress.recent)
    return replaced(progress, recent=tuple(recent))
