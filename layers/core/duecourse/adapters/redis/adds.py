"""Adds on Redis: those of many threads in one script, great ones in pieces."""

import os
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from duecourse.adapters.redis import wire
from duecourse.adapters.redis.record import NO_ORIGIN, origin_of
from duecourse.adapters.redis.scripts import NOT_ALONE
from duecourse.adapters.redis.shared_calls import SharedCalls
from duecourse.adapters.redis.verbs import Verbs, in_steps
from duecourse.domain.shards import by_shard
from duecourse.domain.task import NewTask, Shard
from duecourse.errors import Part, PartlyAdded, StoreFull, StoreUnavailable
from duecourse.ports.ledger import check_count
from duecourse.ports.tasks import MAX_ADD, AddReply, Alone, Reply

MAX_SHARED_BYTES = 1_000_000
"""How much the adds of several threads carry together at most: one larger goes by itself."""
STANDS = frozenset({Reply.CREATED, Reply.KEPT, Reply.REPLACED, Reply.DEBOUNCED})
"""What an add is answered that need not be sent again."""
PIECE_AHEAD = 200
"""Of how many tasks a great add's scripts are, where one is made while the server does the one before: of 125, 250 and
440 it was slower."""


class _Packed(NamedTuple):
    """A task as add.lua takes it, and whose it is."""

    task: NewTask
    arguments: tuple[wire.Argument, ...]


class Adds:
    """Adds of one store: those of several threads share a script."""

    def __init__(self, verbs: Verbs) -> None:
        self._verbs = verbs
        self._shared: SharedCalls[_Packed, AddReply] = SharedCalls(wire.MAX_PIECE, MAX_SHARED_BYTES, StoreUnavailable)

    def add(self, tasks: Sequence[NewTask], echo: bool, alone: Alone | None) -> list[AddReply]:
        """As the store's `add`."""
        if len(tasks) == 1 and not alone and not tasks[0].apart:
            return [self._add_one(tasks[0], echo)]
        shards = [self._verbs.sharding.of(task.queue, task.id, task.group) for task in tasks]
        if alone and tasks:
            check_count(len(tasks), MAX_ADD)
            return self._send(shards[0], echo, _packed(tasks), alone)

        places = by_shard(shards)
        check_count(max(map(len, places.values()), default=0), MAX_ADD)
        answers: dict[int, AddReply] = {}
        for shard, chosen in places.items():
            packed: list[list[_Packed]] = []
            try:
                answers |= zip(chosen, self._add_all(shard, echo, [tasks[i] for i in chosen], packed), strict=True)
            except StoreUnavailable as error:
                there = {index for index, answer in answers.items() if answer.reply in STANDS}
                if isinstance(error, StoreFull):  # of any other it is not known how far it went, nor who has it
                    sent = [one for piece in packed for one in piece]
                    there |= {index for index, has in zip(chosen, self._has(shard, sent), strict=False) if has}
                if not there:
                    raise
                raise PartlyAdded([Part(task.id, index in there) for index, task in enumerate(tasks)]) from error
        return [answers[index] for index in range(len(tasks))]

    def _has(self, shard: Shard, packed: Sequence[_Packed]) -> list[bool]:
        """Presence of each in the shard by this very add, or as a successor; all False if the shard does not answer."""
        keys = self._verbs.keys(shard)
        sids = [str(one.arguments[0]) for one in packed]
        try:
            [found] = self._verbs.scripts.read(
                lambda pipe: pipe.hmget(keys.tasks, [*sids, *(f"{sid}+" for sid in sids)])
            )
        except StoreUnavailable:
            return [False] * len(packed)
        mine = [rest[: len(NO_ORIGIN)] for one in packed if isinstance(rest := one.arguments[-1], bytes)]
        pairs = zip(mine, found[: len(sids)], found[len(sids) :], strict=True)
        return [origin in (origin_of(data) for data in (task, waiting) if data) for origin, task, waiting in pairs]

    def _add_all(self, shard: Shard, echo: bool, tasks: list[NewTask], packed: list[list[_Packed]]) -> list[AddReply]:
        """The answers of one shard; `packed` takes in each piece before it is sent, which is sent again as it was."""
        ahead = not (self._verbs.wait or _twice(tasks))
        pieces = list(wire.pieces(tasks, wire.weight, most=PIECE_AHEAD if ahead else wire.MAX_PIECE))
        ahead = ahead and len(pieces) > 1

        def each() -> Iterator[list[_Packed]]:
            for place, piece in enumerate(pieces):
                if place == len(packed):
                    packed.append(_packed(piece))
                yield packed[place]

        def read(place: int, answer: Any) -> list[AddReply]:
            return wire.added([one.task for one in packed[place]], answer)

        answers = self._verbs.add_ahead(shard, lambda: (_request(one, echo) for one in each()), read) if ahead else None
        if answers is None:
            return [one for piece in each() for one in self._add_piece(shard, echo, piece)]
        rows = zip(packed, answers, strict=True)
        return [one for piece, added in rows for one in self._finished(shard, echo, piece, added)]

    def _finished(self, shard: Shard, echo: bool, piece: list[_Packed], added: list[AddReply]) -> list[AddReply]:
        """Replies of a whole piece; the rest that the bounds of one script left out is added now."""
        rest = piece[len(added) :]
        return added + self._add_piece(shard, echo, rest) if rest else added

    def _add_piece(self, shard: Shard, echo: bool, packed: Sequence[_Packed]) -> list[AddReply]:
        return in_steps(packed, partial(self._send, shard, echo))

    def _add_one(self, task: NewTask, echo: bool) -> AddReply:
        # Packed before it is shared: what does not fit into a record is this caller's error alone.
        [packed] = _packed([task])
        shard = self._verbs.sharding.of(task.queue, task.id, task.group)
        return self._shared.do((shard, echo), packed, wire.weight(task), partial(self._add_piece, shard, echo))

    def _send(self, shard: Shard, echo: bool, packed: Sequence[_Packed], alone: Alone | None = None) -> list[AddReply]:
        tenants, arguments = _request(packed, echo, alone)
        answer = self._verbs.add(shard, tenants, arguments)
        return [] if answer == NOT_ALONE else wire.added([one.task for one in packed], answer)


def _request(
    packed: Sequence[_Packed], echo: bool, alone: Alone | None = None
) -> tuple[list[str], list[wire.Argument]]:
    arguments: list[wire.Argument] = [0, int(echo), *wire.alone(packed[0].task.tenant, alone)]
    for one in packed:
        arguments += one.arguments
    return wire.tenants_of([one.task for one in packed]), arguments


def _twice(tasks: Sequence[NewTask]) -> bool:
    """True if an id occurs twice: the result of the second depends on the first."""
    return len({(task.tenant, task.id) for task in tasks}) < len(tasks)


def _packed(tasks: Sequence[NewTask]) -> list[_Packed]:
    nonce = os.urandom(6)
    return [_Packed(task, wire.new_task(task, nonce + place.to_bytes(2))) for place, task in enumerate(tasks)]
