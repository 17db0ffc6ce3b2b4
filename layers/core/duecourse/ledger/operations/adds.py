"""Adds: those of many threads in one script, great ones in pieces."""

import os
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from functools import cache, partial
from typing import Any, NamedTuple, TypeAlias

from duecourse.base.batches import SharedCalls, in_steps
from duecourse.errors import DuecourseError, InvalidInput, Part, PartlyAdded, StoreFull, StoreMisused, StoreUnavailable
from duecourse.ledger import script_codec
from duecourse.ledger.operation_types import MAX_ADD, MAX_SHARED_BYTES, AddReply, Reply, UniqueCondition, check_count
from duecourse.ledger.operations.base import LedgerBase, ScriptRunner
from duecourse.ledger.record import (
    CALL,
    NO_ORIGIN,
    origin_of,
)
from duecourse.ledger.script_calls import NOT_UNIQUE, Request
from duecourse.ledger.script_codec import Argument, PackedTask, unpack_add_replies
from duecourse.ledger.sharding import by_shard
from duecourse.ledger.task import NewTask, Shard

THERE = frozenset({Reply.CREATED, Reply.KEPT, Reply.REPLACED, Reply.DEBOUNCED})
"""Replies to an add that need not be sent again."""
PIECE_AHEAD = 200
"""Tasks in each script of a great add, where one is made while the server runs the one before: 125, 250 and 440 were
slower."""


class _AddTerms(NamedTuple):
    """Terms of an add as add.lua takes them: see Ledger.add. `unique` is `<tenant>/<group>`, "" for no condition."""

    echo: int
    unique: str
    since: int


_EACH = _AddTerms(echo=1, unique="", since=0)
PackedBatch: TypeAlias = Callable[[], list[PackedTask]]
"""Tasks of one script, packed when they are first asked for: a repeat sends the same bytes."""


class AddOperations(LedgerBase):
    """Adds of tasks."""

    def __init__(self, runner: ScriptRunner, *, deaths: bool) -> None:
        super().__init__(runner, deaths=deaths)
        self._shared: SharedCalls[PackedTask, AddReply] = SharedCalls(
            script_codec.MAX_PIECE, MAX_SHARED_BYTES, StoreUnavailable
        )

    def add(
        self,
        tasks: Sequence[NewTask],
        *,
        echo: bool = False,
        unique: UniqueCondition | None = None,
        since: int = 0,
        mark: bytes = b"",
    ) -> list[AddReply]:
        """Schedule tasks, at most MAX_ADD to a shard; `on_duplicate` of each decides if its id exists already.

        Each shard's tasks are one step, a great many are several. A step is done or not; if the store fails between two
        steps, PartlyAdded names the tasks that it has.
        Credentials are kept as they are given: who adds tasks seals them before (guard/seals.py).
        A task that is not as far `apart` from its group's others as it asks is answered KEPT, without a record.
        With `mark` (6 bytes, or the first 6 of more), which no other request has, the tasks have it. A task that has it
        was added by this request before, and is answered as it was then. `since` is given where a request is sent
        again, and is when it began. A task that took the place of one of this request is answered KEPT. So is one that
        was added or debounced at that instant or later, in whatever state; CHANGED where the task asks to be rejected.
        With `unique`, all tasks are of one tenant and its group: all are added in one step, or none (an empty answer).
        A task over a quota of its tenant is answered with that quota and not added; with `unique` then none is. Raises
        QuotaExceeded, with nothing added, where a queue is new and its tenant has made as many as it may.
        """
        if not tasks:
            return []
        group, since = (f"{tasks[0].tenant}/{unique.group}", unique.since) if unique else ("", since)
        terms = _AddTerms(int(echo), group, since)
        if len(tasks) == 1 and not unique and not tasks[0].apart:
            answers = [self._add_one(tasks[0], terms, mark)]
        else:
            answers = self._add_many(tasks, terms, mark)
        if self._log:
            self._log.added(tasks, answers)
        return answers

    def add_each(self, tasks: Sequence[NewTask]) -> list[AddReply | DuecourseError]:
        """Schedule tasks of separate callers: for each the answer of an echoed `add` of its own, or that one's error.

        They are at most MAX_SHARED, of at most MAX_SHARED_BYTES or only one, and those of a shard share a script.
        """
        found: dict[int, AddReply | DuecourseError] = {}
        for shard, chosen in by_shard([self._sharding.of(task.queue, task.id, task.group) for task in tasks]).items():
            packed: dict[int, PackedTask] = {}
            for i in chosen:
                try:
                    packed[i] = _packed_alone(tasks[i], b"")
                except InvalidInput as error:
                    found[i] = error
            found |= zip(packed, self._send_each(shard, [*packed.values()]), strict=True)
        for i, reply in found.items():
            if self._log and isinstance(reply, AddReply):
                self._log.added([tasks[i]], [reply])
        return [found[i] for i in range(len(tasks))]

    def _send_each(self, shard: Shard, packed: Sequence[PackedTask]) -> Sequence[AddReply | DuecourseError]:
        try:
            if self._registry.max_queues:
                for tenant in {one.task.tenant for one in packed}:
                    self._registry.admit(shard, tenant)
            return in_steps(packed, partial(self._send, shard, _EACH))
        except StoreUnavailable as error:
            return [copy(error) for _ in packed]
        except DuecourseError as error:  # of one of them, whichever it is: each goes alone, with the same bytes
            return [error] if len(packed) == 1 else [one for each in packed for one in self._send_each(shard, [each])]

    def _add_one(self, task: NewTask, terms: _AddTerms, mark: bytes) -> AddReply:
        # Packed before it is shared: a task that does not fit into a record is this caller's error alone.
        packed = _packed_alone(task, mark)
        shard = self._sharding.of(task.queue, task.id, task.group)
        if self._registry.max_queues:
            self._registry.admit(shard, task.tenant)
        send = partial(in_steps, step=partial(self._send, shard, terms))
        return self._shared.do((shard, terms), packed, len(packed.arguments[-1]), send)

    def _add_many(self, tasks: Sequence[NewTask], terms: _AddTerms, mark: bytes) -> list[AddReply]:
        shards = [self._sharding.of(task.queue, task.id, task.group) for task in tasks]
        if self._registry.max_queues:
            for shard, tenant in {(shard, task.tenant): None for shard, task in zip(shards, tasks, strict=True)}:
                self._registry.admit(shard, tenant)
        if terms.unique:
            check_count(len(tasks), MAX_ADD)
            return self._send(shards[0], terms, _packed(tasks, mark, range(len(tasks))))

        places = by_shard(shards)
        check_count(max(map(len, places.values())), MAX_ADD)
        answers: dict[int, AddReply] = {}
        for shard, chosen in places.items():
            batches, goes_ahead = self._cut([tasks[i] for i in chosen], mark, chosen)
            try:
                answers |= zip(chosen, self._add_all(shard, terms, batches, goes_ahead), strict=True)
            except StoreUnavailable as error:
                there = {index for index, answer in answers.items() if answer.reply in THERE}
                if isinstance(error, StoreFull):  # of any other it is not known how far it went, nor who has it
                    there |= {index for index, has in zip(chosen, self._has(shard, batches), strict=True) if has}
                if not there:
                    raise
                raise PartlyAdded([Part(task.id, index in there) for index, task in enumerate(tasks)]) from error
        return [answers[index] for index in range(len(tasks))]

    def _has(self, shard: Shard, batches: Sequence[PackedBatch]) -> list[bool]:
        """Presence of each in the shard by this very add, or as a successor; all False if the shard does not answer."""
        packed = [one for batch in batches for one in batch()]
        sids = [one.arguments[0] for one in packed]
        try:
            tasks, waiting = self._runner.keys(shard).tasks, [f"{sid}+" for sid in sids]
            found = self._scripts.command("HMGET", tasks, *sids, *waiting)
        except StoreUnavailable:
            return [False] * len(packed)
        mine = [one.arguments[-1][: len(NO_ORIGIN)] for one in packed]
        pairs = zip(mine, found[: len(sids)], found[len(sids) :], strict=True)
        return [own in (origin_of(data) for data in (task, waiting) if data) for own, task, waiting in pairs]

    def _cut(self, tasks: Sequence[NewTask], mark: bytes, places: Sequence[int]) -> tuple[list[PackedBatch], bool]:
        """Pieces of one shard's tasks, and True if each may be sent while the server runs the one before.

        `places` are those of the tasks in the whole add.
        """
        may_overlap = not (self._runner.wait or _has_twins(tasks))
        most = PIECE_AHEAD if may_overlap else script_codec.MAX_PIECE
        cut = script_codec.size_batches(tasks, script_codec.task_size, most=most)
        batches, begin = list[PackedBatch](), 0
        for batch in cut:
            batches.append(cache(partial(_packed, batch, mark, places[begin : begin + len(batch)])))
            begin += len(batch)
        return batches, may_overlap and len(batches) > 1

    def _add_all(
        self, shard: Shard, terms: _AddTerms, batches: Sequence[PackedBatch], goes_ahead: bool
    ) -> list[AddReply]:
        ahead, send = self._send_ahead(shard, terms, batches) if goes_ahead else [], partial(self._send, shard, terms)
        replies: list[AddReply] = []
        for place, batch in enumerate(batches):
            done = ahead[place] if ahead else []
            replies += done + in_steps(batch()[len(done) :], send)
        return replies

    def _send_ahead(self, shard: Shard, terms: _AddTerms, batches: Sequence[PackedBatch]) -> list[list[AddReply]]:
        """Replies to the first tasks of each piece; none for a rejected piece, which then goes by itself."""
        self._registry.check(shard.queue)
        self._registry.keep(shard)

        def requests() -> Iterator[Request]:
            return (self._runner.request(shard, *_request(batch(), terms)) for batch in batches)

        def read(place: int, answer: Any) -> list[AddReply]:
            return unpack_add_replies(batches[place](), answer) if isinstance(answer, list) else []

        try:
            return self._scripts.evaluate_pipelined("add", requests, read)
        except StoreMisused as error:
            self._runner.doubt("add", shard, error)
            raise

    def _send(self, shard: Shard, terms: _AddTerms, packed: Sequence[PackedTask]) -> list[AddReply]:
        answer = self._runner.run_registered("add", shard, *_request(packed, terms))
        return [] if answer == NOT_UNIQUE else unpack_add_replies(packed, answer)


def _request(packed: Sequence[PackedTask], terms: _AddTerms) -> tuple[list[str], list[Argument]]:
    """Tenants, whose due sets are among the script's keys, and arguments of add.lua."""
    every: list[Argument] = [0, *terms]
    for one in packed:
        every += one.arguments
    return list({one.task.tenant: None for one in packed}), every


def _has_twins(tasks: Sequence[NewTask]) -> bool:
    """True if an id occurs twice: the result of the second depends on the first."""
    return len({(task.tenant, task.id) for task in tasks}) < len(tasks)


def _packed_alone(task: NewTask, mark: bytes) -> PackedTask:
    return script_codec.pack_new_task(task, mark or os.urandom(CALL), 0, is_keyed=bool(mark))


def _packed(tasks: Sequence[NewTask], mark: bytes, places: Sequence[int]) -> list[PackedTask]:
    """Tasks with their arguments; `places` are those in the whole add, which a request with a key has in each try."""
    call, numbers = (mark, places) if mark else (os.urandom(CALL), range(len(tasks)))
    pack = partial(script_codec.pack_new_task, is_keyed=bool(mark))
    return [pack(task, call, number) for task, number in zip(tasks, numbers, strict=True)]
