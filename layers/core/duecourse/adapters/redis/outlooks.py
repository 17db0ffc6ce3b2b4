"""Outlook of each of many shards on Redis: when it next has something to do."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from duecourse.adapters.redis.many import Asked, ask
from duecourse.adapters.redis.scripts import RESHARDED
from duecourse.adapters.redis.verbs import Verbs
from duecourse.adapters.redis.wire import Argument
from duecourse.domain.task import Shard
from duecourse.ports.ledger import Away
from duecourse.ports.upkeep import Outlook


def outlook_of(verbs: Verbs, shards: Sequence[Shard]) -> list[Outlook | Away]:
    """The outlook of many shards, in a round trip a node."""
    return ask(verbs, shards, Asked("outlook", partial(_prepare, verbs), partial(_read, verbs), partial(_alone, verbs)))


def _alone(verbs: Verbs, shard: Shard) -> Outlook:
    answer = verbs.scripts.evaluate("outlook", *_prepare(verbs, shard), again=True)
    if answer == RESHARDED:
        verbs.record.refuse(shard)
    return _read(verbs, shard, answer)


def _prepare(verbs: Verbs, shard: Shard) -> tuple[int, Sequence[Argument]]:
    keys = verbs.keys(shard)
    return len(keys.fixed), (*keys.fixed, verbs.sharding.count(shard.queue))


def _read(verbs: Verbs, _shard: Shard, answer: Any) -> Outlook:
    now, next_at, dead = answer
    travel = verbs.scripts.travel
    return Outlook(next_at or 0, dead, travel.now() if travel else now)
