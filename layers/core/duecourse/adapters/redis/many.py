"""One verb on many shards: a round trip a node for all of them together."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

from duecourse.adapters.redis.connect import node_of
from duecourse.adapters.redis.scripts import RESHARDED, load
from duecourse.adapters.redis.verbs import Verbs
from duecourse.adapters.redis.wire import Argument
from duecourse.domain.task import Shard
from duecourse.errors import StoreMisused, StoreUnavailable
from duecourse.ports.ledger import answered

T = TypeVar("T")


class Asked(NamedTuple):
    """How a verb is asked of one shard: its script, how many of `every` are keys; `read` makes its answer a value."""

    verb: str
    prepare: Callable[[Shard], tuple[int, Sequence[Argument]]]
    read: Callable[[Shard, Any], Any]
    alone: Callable[[Shard], Any]
    """The same for one shard, in a round trip of its own: for what a pipeline cannot do, such as load the script."""


def ask(verbs: Verbs, shards: Sequence[Shard], asked: Asked) -> list[Any]:
    """Each shard's answer, or the StoreUnavailable or StoreMisused that is why it has none. May be sent twice."""
    answers: dict[Shard, Any] = {}
    ready: dict[int, list[tuple[Shard, Any, int, Sequence[Argument]]]] = {}
    for shard in shards:
        prepared = answered(partial(asked.prepare, shard))
        if isinstance(prepared, (StoreUnavailable, StoreMisused)):
            answers[shard] = prepared
        else:
            node = node_of(verbs.scripts.client, str(prepared[1][0]))
            ready.setdefault(id(node), []).append((shard, node, *prepared))
    for rows in ready.values():
        answers |= _ask_node(verbs, rows, asked)
    return [answers[shard] for shard in shards]


def _ask_node(
    verbs: Verbs, rows: Sequence[tuple[Shard, Any, int, Sequence[Argument]]], asked: Asked
) -> dict[Shard, Any]:
    shards = [shard for shard, *_ in rows]
    try:
        script = load(asked.verb)
        found = verbs.scripts.call(partial(_send, rows, verbs.scripts.how(script), script.sha), again=True)
    except StoreUnavailable:
        first = answered(partial(asked.alone, shards[0]))  # which finds out who has taken over
        if isinstance(first, StoreUnavailable):
            return dict.fromkeys(shards, first)
        return {shards[0]: first} | {shard: answered(partial(asked.alone, shard)) for shard in shards[1:]}
    return {shard: _read(verbs, shard, answer, asked) for shard, answer in zip(shards, found, strict=True)}


def _send(rows: Sequence[tuple[Shard, Any, int, Sequence[Argument]]], how: str, sha: str) -> list[Any]:
    with rows[0][1].pipeline(transaction=False) as pipe:
        for _, _, count, every in rows:
            pipe.execute_command(how, sha, count, *every)
        return list(pipe.execute(raise_on_error=False))


def _read(verbs: Verbs, shard: Shard, answer: Any, asked: Asked) -> Any:
    if isinstance(answer, Exception):
        return answered(partial(asked.alone, shard))
    if answer == RESHARDED:
        return answered(partial(verbs.record.refuse, shard))
    return answered(partial(asked.read, shard, answer))
