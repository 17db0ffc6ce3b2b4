"""Adds: those of many threads in one script, great ones in pieces."""

import os
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from typing import Any, NamedTuple, TypeAlias

from duecourse.base.batches import SharedCalls
from duecourse.errors import Part, PartlyAdded, StoreFull, StoreMisused, StoreUnavailable
from duecourse.ledger import script_codec
from duecourse.ledger.operations import MAX_ADD, AddReply, Reply, UniqueCondition, check_count
from duecourse.ledger.record import (
    CALL,
    NO_ORIGIN,
    origin,
    origin_of,
)
from duecourse.ledger.script_calls import NOT_UNIQUE, Request
from duecourse.ledger.script_codec import unpack_add_replies
from duecourse.ledger.sharding import by_shard
from duecourse.ledger.store.base import ScriptRunner, in_steps
from duecourse.ledger.task import NewTask, Shard

MAX_SHARED_BYTES = 1_000_000
"""Most bytes that the adds of several threads have together: a larger one goes by itself."""
THERE = frozenset({Reply.CREATED, Reply.KEPT, Reply.REPLACED, Reply.DEBOUNCED})
"""Replies to an add that need not be sent again."""
PIECE_AHEAD = 200
"""Tasks in each script of a great add, where one is made while the server runs the one before: 125, 250 and 440 were
slower."""


class _Packed(NamedTuple):
    """A task and its arguments of add.lua."""

    task: NewTask
    arguments: tuple[script_codec.Argument, ...]


class _AddTerms(NamedTuple):
    """Terms of an add: see Ledger.add."""

    echo: bool
    unique: UniqueCondition | None = None
    since: int = 0


PackedBatch: TypeAlias = Callable[[], list[_Packed]]
"""Tasks of one script, packed when they are first asked for: a repeat sends the same bytes."""


class Adds:
    """Adds to one ledger."""

    def __init__(self, runner: ScriptRunner) -> None:
        self._runner = runner
        self._shared: SharedCalls[_Packed, AddReply] = SharedCalls(
            script_codec.MAX_PIECE, MAX_SHARED_BYTES, StoreUnavailable
        )

    def add(
        self, tasks: Sequence[NewTask], echo: bool, unique: UniqueCondition | None, since: int = 0, mark: bytes = b""
    ) -> list[AddReply]:
        """Answers to an add, in the order of its tasks: see Ledger.add."""
        terms = _AddTerms(echo, unique, since)
        if len(tasks) == 1 and not unique and not tasks[0].apart:
            return [self._add_one(tasks[0], terms, mark)]
        shards = [self._runner.sharding.of(task.queue, task.id, task.group) for task in tasks]
        if self._runner.registry.max_queues:
            for shard, tenant in {(shard, task.tenant): None for shard, task in zip(shards, tasks, strict=True)}:
                self._runner.registry.admit(shard, tenant)
        if unique and tasks:
            check_count(len(tasks), MAX_ADD)
            return self._send(shards[0], terms, _packed(tasks, mark, range(len(tasks))))

        places = by_shard(shards)
        check_count(max(map(len, places.values()), default=0), MAX_ADD)
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

    def _add_one(self, task: NewTask, terms: _AddTerms, mark: bytes) -> AddReply:
        # Packed before it is shared: a task that does not fit into a record is this caller's error alone.
        [packed] = _packed([task], mark, range(1))
        shard = self._runner.sharding.of(task.queue, task.id, task.group)
        self._runner.registry.admit(shard, task.tenant)
        return self._shared.do(
            (shard, terms), packed, script_codec.task_size(task), partial(self._add_batch, shard, terms)
        )

    def _has(self, shard: Shard, batches: Sequence[PackedBatch]) -> list[bool]:
        """Presence of each in the shard by this very add, or as a successor; all False if the shard does not answer."""
        packed = [one for batch in batches for one in batch()]
        sids = [str(one.arguments[0]) for one in packed]
        try:
            tasks, waiting = self._runner.keys(shard).tasks, [f"{sid}+" for sid in sids]
            found = self._runner.scripts.command("HMGET", tasks, *sids, *waiting)
        except StoreUnavailable:
            return [False] * len(packed)
        mine = [rest[: len(NO_ORIGIN)] for one in packed if isinstance(rest := one.arguments[-1], bytes)]
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
        ahead = self._send_ahead(shard, terms, batches) if goes_ahead else []
        replies: list[AddReply] = []
        for place, batch in enumerate(batches):
            done = ahead[place] if ahead else []
            replies += done + self._add_batch(shard, terms, batch()[len(done) :])
        return replies

    def _send_ahead(self, shard: Shard, terms: _AddTerms, batches: Sequence[PackedBatch]) -> list[list[AddReply]]:
        """Replies to the first tasks of each piece; none for a rejected piece, which then goes by itself."""
        self._runner.registry.check(shard.queue)
        self._runner.registry.keep(shard)

        def requests() -> Iterator[Request]:
            return (self._runner.request(shard, *_request(batch(), terms)) for batch in batches)

        def read(place: int, answer: Any) -> list[AddReply]:
            return (
                unpack_add_replies([one.task for one in batches[place]()], answer) if isinstance(answer, list) else []
            )

        try:
            return self._runner.scripts.evaluate_pipelined("add", requests, read)
        except StoreMisused as error:
            self._runner.doubt("add", shard, error)
            raise

    def _add_batch(self, shard: Shard, terms: _AddTerms, packed: Sequence[_Packed]) -> list[AddReply]:
        return in_steps(packed, partial(self._send, shard, terms))

    def _send(self, shard: Shard, terms: _AddTerms, packed: Sequence[_Packed]) -> list[AddReply]:
        tenants, every = _request(packed, terms)
        answer = self._runner.run_registered("add", shard, tenants, every)
        return [] if answer == NOT_UNIQUE else unpack_add_replies([one.task for one in packed], answer)


def _request(packed: Sequence[_Packed], terms: _AddTerms) -> tuple[list[str], list[script_codec.Argument]]:
    every: list[script_codec.Argument] = [
        0,
        int(terms.echo),
        *script_codec.pack_unique_condition(packed[0].task.tenant, terms.unique, terms.since),
    ]
    for one in packed:
        every += one.arguments
    return script_codec.tenants_of([one.task for one in packed]), every


def _has_twins(tasks: Sequence[NewTask]) -> bool:
    """True if an id occurs twice: the result of the second depends on the first."""
    return len({(task.tenant, task.id) for task in tasks}) < len(tasks)


def _packed(tasks: Sequence[NewTask], mark: bytes, places: Sequence[int]) -> list[_Packed]:
    """Tasks with their arguments; `places` are those in the whole add, which a request with a key has in each try."""
    call, numbers = (mark, places) if mark else (os.urandom(CALL), range(len(tasks)))
    origins = (origin(call, number, is_keyed=bool(mark)) for number in numbers)
    return [_Packed(task, script_codec.pack_new_task(task, own)) for task, own in zip(tasks, origins, strict=True)]
