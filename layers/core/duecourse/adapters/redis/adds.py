"""Adds: those of many threads in one script, great ones in pieces."""

import os
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from typing import Any, NamedTuple, TypeAlias

from duecourse.adapters.redis import arguments
from duecourse.adapters.redis.answers import added
from duecourse.adapters.redis.record import NO_ORIGIN, origin_of
from duecourse.adapters.redis.scripts import NOT_ALONE, UNREGISTERED, Request
from duecourse.adapters.redis.shared_calls import SharedCalls
from duecourse.adapters.redis.verbs import Verbs, in_steps
from duecourse.domain.shards import by_shard
from duecourse.domain.task import DEFAULT_TENANT, NewTask, Shard
from duecourse.errors import Part, PartlyAdded, StoreFull, StoreUnavailable
from duecourse.ports.ledger import check_count
from duecourse.ports.tasks import MAX_ADD, AddReply, Alone, Reply

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
    arguments: tuple[arguments.Argument, ...]


class _How(NamedTuple):
    """Terms of an add: see TaskStore.add."""

    echo: bool
    alone: Alone | None = None
    since: int = 0


Piece: TypeAlias = Callable[[], list[_Packed]]
"""Tasks of one script, packed when they are first asked for: a repeat sends the same bytes."""


class Adds:
    """Adds to one store, whose shards get the deployment's `quotas` before their first add."""

    def __init__(self, verbs: Verbs, quotas: str = "") -> None:
        self._verbs = verbs
        self._quotas = quotas
        self._shared: SharedCalls[_Packed, AddReply] = SharedCalls(
            arguments.MAX_PIECE, MAX_SHARED_BYTES, StoreUnavailable
        )

    def add(self, tasks: Sequence[NewTask], echo: bool, alone: Alone | None, since: int = 0) -> list[AddReply]:
        """See TaskStore.add."""
        how = _How(echo, alone, since)
        if len(tasks) == 1 and not alone and not tasks[0].apart:
            return [self._add_one(tasks[0], how)]
        shards = [self._verbs.sharding.of(task.queue, task.id, task.group) for task in tasks]
        if self._verbs.record.max_queues:
            for shard, tenant in {(shard, task.tenant): None for shard, task in zip(shards, tasks, strict=True)}:
                self._verbs.record.admit(shard, tenant)
        if alone and tasks:
            check_count(len(tasks), MAX_ADD)
            return self._send(shards[0], how, _packed(tasks))

        places = by_shard(shards)
        check_count(max(map(len, places.values()), default=0), MAX_ADD)
        answers: dict[int, AddReply] = {}
        for shard, chosen in places.items():
            pieces, goes_ahead = self._cut([tasks[i] for i in chosen])
            try:
                answers |= zip(chosen, self._add_all(shard, how, pieces, goes_ahead), strict=True)
            except StoreUnavailable as error:
                there = {index for index, answer in answers.items() if answer.reply in THERE}
                if isinstance(error, StoreFull):  # of any other it is not known how far it went, nor who has it
                    there |= {index for index, has in zip(chosen, self._has(shard, pieces), strict=True) if has}
                if not there:
                    raise
                raise PartlyAdded([Part(task.id, index in there) for index, task in enumerate(tasks)]) from error
        return [answers[index] for index in range(len(tasks))]

    def _add_one(self, task: NewTask, how: _How) -> AddReply:
        # Packed before it is shared: a task that does not fit into a record is this caller's error alone.
        [packed] = _packed([task])
        shard = self._verbs.sharding.of(task.queue, task.id, task.group)
        self._verbs.record.admit(shard, task.tenant)
        return self._shared.do((shard, how), packed, arguments.weight(task), partial(self._add_piece, shard, how))

    def _has(self, shard: Shard, pieces: Sequence[Piece]) -> list[bool]:
        """Presence of each in the shard by this very add, or as a successor; all False if the shard does not answer."""
        packed = [one for piece in pieces for one in piece()]
        sids = [str(one.arguments[0]) for one in packed]
        try:
            tasks, waiting = self._verbs.keys(shard).tasks, [f"{sid}+" for sid in sids]
            found = self._verbs.scripts.command("HMGET", tasks, *sids, *waiting)
        except StoreUnavailable:
            return [False] * len(packed)
        mine = [rest[: len(NO_ORIGIN)] for one in packed if isinstance(rest := one.arguments[-1], bytes)]
        pairs = zip(mine, found[: len(sids)], found[len(sids) :], strict=True)
        return [origin in (origin_of(data) for data in (task, waiting) if data) for origin, task, waiting in pairs]

    def _cut(self, tasks: Sequence[NewTask]) -> tuple[list[Piece], bool]:
        """Pieces of one shard's tasks, and True if each may be sent while the server runs the one before."""
        may_overlap = not (self._verbs.wait or _has_twins(tasks))
        most = PIECE_AHEAD if may_overlap else arguments.MAX_PIECE
        cut = arguments.pieces(tasks, arguments.weight, most=most)
        pieces: list[Piece] = [cache(partial(_packed, piece)) for piece in cut]
        return pieces, may_overlap and len(pieces) > 1

    def _add_all(self, shard: Shard, how: _How, pieces: Sequence[Piece], goes_ahead: bool) -> list[AddReply]:
        ahead = self._send_ahead(shard, how, pieces) if goes_ahead else []
        replies: list[AddReply] = []
        for place, piece in enumerate(pieces):
            done = ahead[place] if ahead else []
            replies += done + self._add_piece(shard, how, piece()[len(done) :])
        return replies

    def _send_ahead(self, shard: Shard, how: _How, pieces: Sequence[Piece]) -> list[list[AddReply]]:
        """Replies to the first tasks of each piece; none for a rejected piece, which then goes by itself."""
        self._get_ready(shard)

        def requests() -> Iterator[Request]:
            return (self._verbs.request(shard, *_request(piece(), how)) for piece in pieces)

        def read(place: int, answer: Any) -> list[AddReply]:
            return added([one.task for one in pieces[place]()], answer) if isinstance(answer, list) else []

        return self._verbs.scripts.evaluate_ahead("add", requests, read)

    def _add_piece(self, shard: Shard, how: _How, packed: Sequence[_Packed]) -> list[AddReply]:
        return in_steps(packed, partial(self._send, shard, how))

    def _send(self, shard: Shard, how: _How, packed: Sequence[_Packed]) -> list[AddReply]:
        tenants, every = _request(packed, how)
        answer = self.run_registered("add", shard, tenants, every)
        return [] if answer == NOT_ALONE else added([one.task for one in packed], answer)

    def run_registered(self, verb: str, shard: Shard, tenants: Sequence[str], every: list[arguments.Argument]) -> Any:
        """Answer of a script by which a shard may get its first task.

        The first argument of the script is 0; the version of the shard's records once the shard is on record.
        """
        self._get_ready(shard)
        answer = self._verbs.run(verb, shard, tenants, every)
        if answer == UNREGISTERED:
            every[0] = self._verbs.record.register(shard)
            if self._quotas:
                self._verbs.run("configure", shard, [DEFAULT_TENANT], ("q", self._quotas))
            answer = self._verbs.run(verb, shard, tenants, every)
        return answer

    def _get_ready(self, shard: Shard) -> None:
        self._verbs.record.check(shard.queue)
        self._verbs.record.keep(shard)


def _request(packed: Sequence[_Packed], how: _How) -> tuple[list[str], list[arguments.Argument]]:
    every: list[arguments.Argument] = [
        0,
        int(how.echo),
        *arguments.alone(packed[0].task.tenant, how.alone, how.since),
    ]
    for one in packed:
        every += one.arguments
    return arguments.tenants_of([one.task for one in packed]), every


def _has_twins(tasks: Sequence[NewTask]) -> bool:
    """True if an id occurs twice: the result of the second depends on the first."""
    return len({(task.tenant, task.id) for task in tasks}) < len(tasks)


def _packed(tasks: Sequence[NewTask]) -> list[_Packed]:
    nonce = os.urandom(6)
    return [_Packed(task, arguments.new_task(task, nonce + place.to_bytes(2))) for place, task in enumerate(tasks)]
