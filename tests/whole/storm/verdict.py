"""The comparison at the end of a storm: what was acknowledged and what ran, against the ledger as it stands."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise

from duecourse import Client, Status, Task, errors
from duecourse.ledger.api_query import QueryState
from tests.whole.storm.book import Answer, Book, ClientRequest, Ran, Received
from tests.whole.storm.clients import MAX_ATTEMPTS, PEOPLE
from tests.whole.storm.parts import GRACE_MS
from tests.whole.storm.plan import Plan

SAME_MOMENT_MS = 100
"""Two processes read the clock one after another: what differs by less is no order."""
UNSETTLED_MS = 5_000
"""Time for which an outcome may wait for a store that is away, with its process."""
BUSY_MS = 2_000
"""Time that a busy machine takes from a handler's end to the request that settles it."""
WAITS_MS = 15_000
"""The most time that a claimed task waits in a process of a busy machine."""
GAP_MS = 3_000
"""Time between two faults within which little of what waits is caught up with."""
RUNS = {"loop": 3, "flaky": 2}
"""Runs that a kind takes when nothing fails; every other takes one."""
MAKES = frozenset({"add", "replace"})
GOES_ON = frozenset({"Again", "Retry"})
LEAD_MS = 30_000
"""Time before a meeting at which its message is due."""
PROCESSES = frozenset({"process", "worker", "bridge", "function"})
"""First words of the faults that no server has."""
AWAY = frozenset({"redis-stalled"})
"""Faults that keep the store from a function for longer than its own time."""


@dataclass(slots=True)
class Verdict:
    """What was found. A storm is passed when `wrong` is empty; `doubles` counts further runs by their reasons."""

    wrong: list[str] = field(default_factory=list)
    doubles: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    late: list[tuple[int, int]] = field(default_factory=list)
    """When each first run began (epoch ms), and how long after its due time."""


class Judge:
    """Compares one storm. `faults` are the name, begin and end (epoch ms) of each fault that happened.

    `killed` has the processes that were killed, `stopped` those of workers that were, with when (epoch ms). `frozen`
    has those that froze, with from when to when.
    """

    def __init__(
        self,
        plan: Plan,
        book: Book,
        client: Client,
        faults: Sequence[tuple[str, int, int]],
        mails: Counter[str] | None = None,
        killed: Mapping[int, int] | None = None,
        stopped: Mapping[int, int] | None = None,
        frozen: Sequence[tuple[int, int, int]] = (),
    ) -> None:
        self._mails = mails or Counter()
        self._plan, self._book, self._client = plan, book, client
        self._asked, self._runs = book.by_name(), book.runs()
        self._killed, self._stopped, self._frozen = dict(killed or {}), dict(stopped or {}), frozen
        for ran in chain.from_iterable(self._runs.values()):
            if ran.kind == "w.killer":
                self._killed.setdefault(ran.pid, ran.began_at)
        self._stepped = [(began - 1_000, ended + 1_000) for name, began, ended in faults if name.startswith("clock-")]
        self._ahead = [(began, ended) for name, began, ended in faults if name == "clock-ahead"]
        self._away = [(began, ended) for name, began, ended in faults if name in AWAY]
        self._of_store = [(began, ended) for name, began, ended in faults if name.partition("-")[0] not in PROCESSES]
        # A primary that was stopped, or is killed, may give leases and take ends that the next one does not know.
        self._failovers = [(began, ended) for name, began, ended in faults if name.startswith("primary-")]
        self._received: dict[str, list[Received]] = defaultdict(list)
        for one in book.received:
            self._received[one.name].append(one)
        self.verdict = Verdict()

    def judge(self) -> Verdict:
        """Look at every task and every schedule that was asked for."""
        for name, kind in self._plan.kinds.items():
            self._judge_task(name, kind, self._asked.get(name, []))
        self._judge_schedules()
        self._judge_reminders()
        self._judge_queries()
        return self.verdict

    def _say(self, name: str, words: str) -> None:
        self.verdict.wrong.append(f"{name}: {words}")

    def _task(self, name: str) -> Task | None:
        queue, _, id = name.partition("/")
        try:
            return self._client.get(id, queue)
        except errors.TaskNotFound:
            return None

    def _judge_task(self, name: str, kind: str, asked: Sequence[ClientRequest]) -> None:
        task, runs = self._task(name), self._runs.get(name, [])
        self.verdict.counts["tasks"] += 1
        self._judge_end(name, kind, task, asked)
        self._judge_changes(name, runs, asked)
        self._judge_runs(name, kind, task, runs, asked)

    def _judge_end(self, name: str, kind: str, task: Task | None, asked: Sequence[ClientRequest]) -> None:
        """The last acknowledged change is what stands; an unknown one after it may stand too."""
        may_be = possible(asked)
        if rejected := [
            a for n, a in enumerate(asked) if a.verb in MAKES and a.answer is Answer.NO and not _died(asked[:n], a)
        ]:
            self._say(name, f"REJECTED: {_told(rejected)}")
        if task is None and kind == "poll" and (0, False) not in may_be and self._is_cancelled_dead(asked):
            self.verdict.counts["deadlines of the wrong clock"] += 1  # it was dead, and a cancel deletes what is dead
            return
        if task is None:
            if (0, False) not in may_be:
                self._say(name, f"LOST: acknowledged as {sorted(may_be)}, and not there")
            return
        self.verdict.counts[str(task.status)] += 1
        found = (self._version(task), task.status is Status.CANCELLED)
        if found not in may_be:
            self._say(name, f"UNDONE: it is {found}, acknowledged were {sorted(may_be)}: {_told(asked)}")
        if task.status is Status.DEAD:
            self._judge_dead(name, kind, task)
        elif task.status is Status.DONE:
            self._judge_done(name, task)
        elif task.status is not Status.CANCELLED:
            self._say(name, f"LATE FOR GOOD: {kind} is {task.status}, due at {task.due}: {_history(task)}")

    def _is_cancelled_dead(self, asked: Sequence[ClientRequest]) -> bool:
        """Whether the last change is a cancel of a task that may have died of its deadline by the wrong clock."""
        last = asked[-1]
        return last.verb == "cancel" and last.answer is not Answer.NO and self._was_ahead(asked[0].sent_at)

    def _version(self, task: Task) -> int:
        if task.kind == "webhook":
            return int(task.payload["body"]["v"])
        if task.kind == "poll":
            return int(task.payload["url"].split("/")[-2])
        return int(task.payload["v"])

    def _judge_dead(self, name: str, kind: str, task: Task) -> None:
        """Each attempt of a dead task is a run that began."""
        begun = [ran for ran in self._runs.get(name, []) if ran.v == self._version(task)]
        if kind == "poll" and task.error == "past its deadline" and self._was_ahead(self._asked[name][0].sent_at):
            self.verdict.counts["deadlines of the wrong clock"] += 1  # promises.md: they pass by the server's clock
            return
        if kind not in MAX_ATTEMPTS:
            self._say(name, f"DEAD, and nothing was wrong with it: {task.error}; {_history(task)}")
        if kind.startswith(("w.", "f.")) and len(begun) < task.retry.max_attempts:
            self._say(name, f"DEAD after {len(begun)} runs that began, of {task.retry.max_attempts}: {_history(task)}")

    def _judge_done(self, name: str, task: Task) -> None:
        """What is done was run to its end, and the result is of the run with the highest fence."""
        v = self._version(task)
        if task.kind.startswith(("w.", "f.")):
            ran = [one for one in self._runs.get(name, []) if one.v == v]
            if not any(one.ended_at for one in ran):
                self._say(name, "DONE without a run that ended")
            elif any(one.fence > task.result["fence"] and not self._is_of_failover(one.began_at) for one in ran):
                self._say(name, f"STALE: the result is of fence {task.result['fence']}: {_ran(ran)}")
        elif v not in (received := [one.v for one in self._received[name]]):
            self._say(name, f"LOST outside: version {v} is done, received were {received}")

    def _judge_changes(self, name: str, runs: Iterable[Ran], asked: Sequence[ClientRequest]) -> None:
        """No run of what was replaced or cancelled begins after the answer, and none before its due time."""
        for ran in runs:
            for n, one in enumerate(asked):
                over = one.answer is Answer.YES and (
                    one.verb == "cancel" or (one.verb in MAKES and one.v > (ran.v or 0))
                )
                anew = any(later.verb in MAKES and later.v == ran.v for later in asked[n:])
                if over and not anew and ran.began_at > one.answered_at + SAME_MOMENT_MS:
                    self._say(name, f"UNDONE: version {ran.v} ran {ran.began_at - one.answered_at} ms after {one.verb}")
            earliest = earliest_due(asked, ran)
            # Once its first run has begun, it is due by its policy. A move lets it begin anew.
            first = [one for one in runs if one.v == ran.v and one.run <= 1 and one.began_at <= ran.began_at] or [ran]
            if earliest and ran.began_at < earliest - SAME_MOMENT_MS and not self._is_handed_out(first[-1].began_at):
                self._say(name, f"EARLY: version {ran.v} ran {earliest - ran.began_at} ms before it was due")

    def _is_of_failover(self, at: int) -> bool:
        return any(began <= at <= ended for began, ended in self._failovers)

    def _is_stepped(self, at: int) -> bool:
        return any(began <= at <= ended for began, ended in self._stepped)

    def _is_handed_out(self, at: int) -> bool:
        """Whether a run that began then may have been added or claimed by a wrong clock, and waited for a place."""
        return any(began <= at <= ended + WAITS_MS for began, ended in self._stepped)

    def _was_ahead(self, since: int) -> bool:
        return any(ended > since for _, ended in self._ahead)

    def _judge_runs(
        self, name: str, kind: str, task: Task | None, runs: Sequence[Ran], asked: Sequence[ClientRequest]
    ) -> None:
        """Each further run of a generation has a reason."""
        fences = Counter((ran.fence, ran.began_at) for ran in runs)
        fenced = Counter(ran.fence for ran in runs)
        if any(many > 1 for many in fenced.values()):
            self._say(name, f"TWICE under one lease: {fences}")
        history = {run.run: run.outcome for run in task.history} if task else {}
        lanes: dict[int | None, list[Ran]] = defaultdict(list)
        for ran in runs:
            lanes[ran.v].append(ran)
        for v, ran_of_v in lanes.items():
            self._judge_doubles(name, v, ran_of_v, history, asked)
            if due := next((a.due_at for a in reversed(asked) if a.due_at and a.sent_at <= ran_of_v[0].began_at), 0):
                self.verdict.late.append(
                    (ran_of_v[0].began_at, max(0, ran_of_v[0].began_at - max(due, asked[0].sent_at)))
                )
        makes = sum(a.verb in MAKES and a.answer is not Answer.NO for a in asked)
        if task and task.status is Status.DONE and not kind.startswith(("w.", "f.")):
            came = [one for one in self._received[name] if one.v == self._version(task)]
            extra = len(came) - (task.run + (makes - 1) * 3)
            if kind != "poll" and extra > sum(self._is_of_failover(one.at) for one in came):
                self._say(name, f"DOUBLE outside: {extra} more than its {task.run} runs")

    def _judge_doubles(
        self, name: str, v: int | None, ran: Sequence[Ran], history: Mapping[int, str], asked: Sequence[ClientRequest]
    ) -> None:
        adds = sum(a.verb in MAKES and a.v == v and a.answer is not Answer.NO for a in asked)
        for before, after in pairwise(ran):
            reason = self._reason(before, after, history, adds)
            if reason is None:
                self._say(name, f"DOUBLE without a reason: {_ran([before, after])}; {dict(history)}")
            elif reason:
                self.verdict.doubles[reason] += 1

    def _reason(self, before: Ran, after: Ran, history: Mapping[int, str], adds: int) -> str | None:
        """Why `after` followed; "" where that is what the kind does, None where nothing says why."""
        lapsed = history.get(before.run) == "lapsed"
        if before.outcome in GOES_ON and not lapsed:
            return ""
        reasons = {
            "its process died or froze": before.ended_at is None or before.ended_at > after.began_at,
            "its outcome did not reach the ledger before its lease lapsed": lapsed,
            "its process died or froze before its outcome was settled": self._died_with(before)
            or self._froze_with(before, after),
            "its worker was stopped while the store was away": self._stopped_with(before),
            "its process froze past its lease before it began": self._began_late(before, after, history),
            "its function's time was over before the store answered": self._waited_in_vain(before, history),
            "the server's clock was moved past its lease": self._is_stepped(after.began_at),
            "it was added again after a lost answer": adds > 1,
            "the server lost the settle by a failover": self._plan.stage != "alone" and before.outcome is not None,
        }
        return next((reason for reason, holds in reasons.items() if holds), None)

    def _died_with(self, ran: Ran) -> bool:
        """True if the process was killed just after this run's end."""
        died_at = self._killed.get(ran.pid)
        return bool(died_at and ran.ended_at and -SAME_MOMENT_MS <= died_at - ran.ended_at < UNSETTLED_MS)

    def _froze_with(self, ran: Ran, after: Ran) -> bool:
        """True if the process froze just after this run's end, and the next run began meanwhile."""
        return any(
            pid == ran.pid
            and -SAME_MOMENT_MS <= began - (ran.ended_at or 0) < BUSY_MS
            and began < after.began_at <= ended + SAME_MOMENT_MS
            for pid, began, ended in self._frozen
        )

    def _stopped_with(self, ran: Ran) -> bool:
        """True if the store was away from this run's end to that of its worker's grace time."""
        stopped_at = self._stopped.get(ran.pid)
        if stopped_at is None or not ran.ended_at or not -SAME_MOMENT_MS <= ran.ended_at - stopped_at <= GRACE_MS:
            return False
        return any(began <= stopped_at + GRACE_MS and ran.ended_at <= ended for began, ended in self._of_store)

    def _began_late(self, before: Ran, after: Ran, history: Mapping[int, str]) -> bool:
        """True if the later of two runs began under the earlier lease, which had lapsed by then."""
        return after.fence < before.fence and history.get(after.run) == "lapsed"

    def _waited_in_vain(self, ran: Ran, history: Mapping[int, str]) -> bool:
        """True if the store was away when a function settled what had ended, and the invocation then failed."""
        failed = ran.kind.startswith("f.") and history.get(ran.run) == "retry"
        return failed and any(began - BUSY_MS <= (ran.ended_at or 0) <= ended for began, ended in self._away)

    def _judge_schedules(self) -> None:
        occurrences: dict[str, set[str]] = defaultdict(set)
        for name in self._runs:
            series, at, _ = name.partition("@")
            if at:
                occurrences[series].add(name)
        for step in (step for step in self._plan.steps if step.verb == "schedule"):
            name = f"{step.queue}/{step.id}"
            asked = self._asked.get(name, [])
            self.verdict.counts["schedules"] += 1
            self.verdict.counts["occurrences"] += len(occurrences[name])
            self._judge_schedule(name, step.fields["limit"], asked, occurrences[name])
            self._judge_occurrences(name, asked, occurrences[name])

    def _judge_schedule(self, name: str, limit: int, asked: Sequence[ClientRequest], ran: set[str]) -> None:
        queue, _, id = name.partition("/")
        deleted = [a for a in asked if a.verb == "delete_schedule" and a.answer is Answer.YES]
        doubtful = any(a.verb == "delete_schedule" and a.answer is Answer.UNKNOWN for a in asked)
        added = any(a.verb == "schedule" and a.answer is Answer.YES for a in asked)
        try:
            status = self._client.schedules.get(id, queue)
        except errors.DuecourseError:
            if added and not deleted and not doubtful:
                self._say(name, "LOST: the schedule was acknowledged, and is not there")
            return
        if deleted:
            self._say(name, "UNDONE: the schedule was deleted, and is there")
        elif status.schedule.paused not in (may_be := may_be_paused(asked)):
            self._say(name, f"UNDONE: paused is {status.schedule.paused}: {_told(asked)}")
        elif status.schedule.paused and len(may_be) > 1:
            self.verdict.counts["schedules left paused by an unknown answer"] += 1
        elif added and status.progress.fired < limit:
            told = f"{status.progress.fired} of {limit} times: {status.why}: {_told(asked)}"
            self._say(name, f"LATE FOR GOOD: it fired {told}")
        by_hand = [a.answer for a in asked if a.verb == "run_schedule"]
        fired = status.progress.fired - status.progress.skipped + by_hand.count(Answer.YES)
        if not fired <= len(ran) <= fired + by_hand.count(Answer.UNKNOWN):
            self._say(name, f"it fired {fired} times, and {len(ran)} occurrences ran: {_told(asked)}")

    def _judge_occurrences(self, name: str, asked: Sequence[ClientRequest], ran: set[str]) -> None:
        """Each occurrence is a task like any other, of the definition that stood at its time."""
        queue = name.partition("/")[0]
        by_hand = {f"{queue}/{a.said}" for a in asked if a.verb == "run_schedule" and a.answer is Answer.YES}
        for one in by_hand - ran:
            self._say(one, "LOST: it was added by hand, and did not run")
        changes = [a for a in asked if a.verb == "change_schedule" and a.answer is Answer.YES]
        for one in sorted(ran):
            task, runs = self._task(one), self._runs[one]
            if task is None or task.status is not Status.DONE:
                self._say(one, f"it is {task.status if task else 'LOST'}: {_history(task) if task else ''}")
            else:
                self._judge_done(one, task)
            self._judge_runs(one, runs[0].kind, task, runs, ())
            first = runs[0]  # a later one is due when the former was given back
            for change in changes:
                due = change.answered_at + SAME_MOMENT_MS < first.due_at <= first.began_at
                if due and first.v != change.v and not self._is_handed_out(first.began_at):
                    self._say(one, f"UNDONE: version {first.v} ran after the change to {change.v}")
            if not any(a.verb == "pause_schedule" for a in asked):
                self.verdict.late.append((runs[0].began_at, max(0, runs[0].began_at - runs[0].due_at)))

    def _judge_queries(self) -> None:
        """Each query that was answered is done, and its API was asked until it was ready."""
        for name, asked in self._asked.items():
            if not name.startswith("queries/"):
                continue
            self.verdict.counts["queries"] += 1
            for id in {a.said for a in asked if a.answer is Answer.YES}:
                status = self._client.get_query(id).status if id.startswith("q-") else QueryState.DONE  # 200: its data
                if status is QueryState.FAILED and self._was_ahead(asked[0].sent_at):
                    self.verdict.counts["deadlines of the wrong clock"] += 1
                elif status is not QueryState.DONE or not self._received[name]:
                    self._say(name, f"query {id} is {status}; received {len(self._received[name])}: {_told(asked)}")
            if rejected := [a for a in asked if a.answer is Answer.NO]:
                self._say(name, f"REJECTED: {_told(rejected)}")

    def _judge_reminders(self) -> None:
        """Each person of an acknowledged reminder has a mail, and none of a cancelled one."""
        dead = list(self._client.list("reminders", state="dead").tasks) if self._mails else []
        for name, asked in self._asked.items():
            if not name.startswith("reminders/"):
                continue
            self.verdict.counts["reminders"] += 1
            id = name.partition("/")[2]
            mails = [self._mails[f"{id}.{person.lower()}@example.com"] for person in PEOPLE]
            cancels = [a.answer for a in asked if a.verb == "cancel_reminder"]
            if Answer.YES in cancels and any(mails) and self._was_cancelled_before_its_message(id, asked):
                self._say(name, f"UNDONE: it was cancelled, and {mails} mails came: {_told(asked)}")
            elif not cancels and asked[-1].answer is Answer.YES and not all(mails):
                if self._was_ahead(asked[-1].sent_at):
                    self.verdict.counts["reminders of the wrong clock"] += 1  # no mail after the start, by that clock
                    continue
                if self._began_without_store(id, asked[0].sent_at):
                    self.verdict.counts["meetings that began while the store was away"] += 1
                    continue
                why = [f"{task.error}: {_history(task)}" for task in dead if id in task.id]
                self._say(name, f"LOST: {mails} mails came: {_told(asked)}; {why}")
            self.verdict.doubles["a mail was sent again"] += sum(max(0, many - 1) for many in mails)

    def _begins(self, id: str, asked_at: int) -> int:
        asked = (step for step in self._plan.steps if step.verb == "remind" and step.id == id)
        return asked_at + int(next(asked).fields["starts"] * 1_000)

    def _was_cancelled_before_its_message(self, id: str, asked: Sequence[ClientRequest]) -> bool:
        """True if the first cancel was answered before the message was due: what is sent later is none of it."""
        cancelled_at = min(a.answered_at for a in asked if a.verb == "cancel_reminder" and a.answer is Answer.YES)
        return cancelled_at < self._begins(id, asked[0].sent_at) - LEAD_MS

    def _began_without_store(self, id: str, asked_at: int) -> bool:
        """True if faults of the store lasted from the time of a meeting's message to its start: later no mail comes."""
        begins = self._begins(id, asked_at)
        return any(
            began <= begins - LEAD_MS + UNSETTLED_MS and begins - UNSETTLED_MS <= ended
            for began, ended in joined(self._of_store)
        )


def judge_gate(book: Book, client: Client) -> list[str]:
    """What is wrong with the queue that is paused and resumed; ask before it is opened for good."""
    asked = [a for a in book.by_name().get("gate/gate", []) if a.verb in {"pause", "resume"}]
    paused = bool(client.get_queue("gate").settings.paused)
    return [] if paused in may_be_paused(asked) else [f"queue gate: UNDONE: paused is {paused}: {_told(asked[-4:])}"]


def joined(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Spans of time, those that follow within GAP_MS as one."""
    found: list[tuple[int, int]] = []
    for began, ended in sorted(spans):
        if found and began <= found[-1][1] + GAP_MS:
            found[-1] = (found[-1][0], max(ended, found[-1][1]))
        else:
            found.append((began, ended))
    return found


def may_be_paused(asked: Iterable[ClientRequest]) -> set[bool]:
    """Whether a queue or schedule may be paused after these answers."""
    may_be = {False}
    for one in asked:
        verb = one.verb.partition("_")[0]
        if verb in {"pause", "resume"} and one.answer is Answer.YES:
            may_be = {verb == "pause"}
        elif verb in {"pause", "resume"} and one.answer is Answer.UNKNOWN:
            may_be.add(verb == "pause")
    return may_be


def possible(asked: Iterable[ClientRequest]) -> set[tuple[int, bool]]:
    """What may stand after these answers: the version of a task (0 for none), and whether it is cancelled."""
    states = {(0, False)}
    for one in asked:
        if one.verb in MAKES:
            made = {(one.v, False)}
            if one.answer is Answer.YES:
                states = made
            elif one.answer is Answer.UNKNOWN:
                states |= made
        elif one.verb == "cancel":
            cancelled = {(v, True) for v, _ in states if v}
            if one.answer is Answer.YES:
                states = cancelled
            elif one.answer is Answer.UNKNOWN:
                states |= cancelled
    return states


def _died(before: Iterable[ClientRequest], again: ClientRequest) -> bool:
    """True if a task may have died between an add whose answer was lost and the same add again."""
    return again.said == "TaskDead" and any(
        one.verb == again.verb and one.v == again.v and one.answer is Answer.UNKNOWN for one in before
    )


def earliest_due(asked: Sequence[ClientRequest], ran: Ran) -> int:
    """The earliest due time that this run's version may have had when it began; 0 for unknown."""
    dues: set[int] = set()
    for one in asked:
        if one.sent_at > ran.began_at or one.answer is Answer.NO or not one.due_at:
            continue
        if one.verb == "move" or (one.verb in MAKES and one.v == ran.v):
            known = one.answer is Answer.YES and one.answered_at < ran.began_at
            dues = {one.due_at} if known else dues | {one.due_at}
    return min(dues, default=0)


def _told(asked: Iterable[ClientRequest]) -> str:
    return ", ".join(f"{a.verb} v{a.v} {a.answer} {a.said} ({a.sent_at}..{a.answered_at})" for a in asked)


def _ran(ran: Iterable[Ran]) -> str:
    return "; ".join(
        f"run {r.run} attempt {r.attempt} fence {r.fence} pid {r.pid} {r.began_at}..{r.ended_at} {r.outcome}"
        for r in ran
    )


def _history(task: Task) -> Iterator[str] | str:
    return ", ".join(f"{run.run}:{run.outcome} {run.detail}" for run in task.history)
