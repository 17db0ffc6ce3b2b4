"""Upgrade of a ledger to the newest version of records, which callers of earlier versions cannot read."""

import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from duecourse.adapters.redis.connect import Client
from duecourse.adapters.redis.keys import keys_of, ledger_key, on_record, shards_key
from duecourse.adapters.redis.layout import NEWEST
from duecourse.adapters.redis.scripts import RESHARDED, Scripts
from duecourse.domain.task import Shard
from duecourse.errors import StoreMisused, StoreUnavailable

SHOWN = 5


class Upgraded(NamedTuple):
    """Number of shards of the ledger, of those whose version was raised, and of records that were rewritten."""

    shards: int
    raised: int
    rewritten: int


class Looked(NamedTuple):
    """State of one shard: the version of its records, and how many fences callers of earlier versions have drawn."""

    version: int
    others: int
    rewritten: int
    is_left: bool


class Upgrade:
    """One upgrade of one ledger; `report` receives a line now and then. Raises StoreMisused and StoreUnavailable."""

    def __init__(self, client: Client, namespace: str, report: Callable[[str], object]) -> None:
        self._scripts = Scripts(client, None)
        self._namespace = namespace
        self._report = report

    def run(self, watch_s: float) -> Upgraded:
        """Watch for callers of earlier versions, raise every shard if there are none, and rewrite their records.

        Raises StoreMisused, with no shard raised, if such a caller adds or claims a task within `watch_s`.
        """
        raised = 0
        while old := self._old(counts := self._counts()):  # again, for a queue may be new since
            self._report(f"watching {len(old)} of {len(counts)} shards for callers of earlier versions")
            time.sleep(watch_s)
            # They are fewer where another upgrade has raised the shard.
            self._refuse([shard for shard, look in old.items() if self._ask(shard, counts).others > look.others])
            self._raise(old, counts)
            self._write_version()
            raised += len(old)
        self._write_version()
        return Upgraded(len(counts), raised, sum(self._rewrite(shard, counts) for shard in counts))

    def _old(self, counts: Mapping[Shard, int]) -> dict[Shard, Looked]:
        """The shards that are not of the newest version."""
        return {shard: look for shard in counts if (look := self._ask(shard, counts)).version < NEWEST}

    def _write_version(self) -> None:
        """Give new shards the newest version."""
        self._scripts.command("HSET", ledger_key(self._namespace), "layout", NEWEST)

    def _raise(self, old: Mapping[Shard, Looked], counts: Mapping[Shard, int]) -> None:
        """Raise shards, each unless a fence was drawn in it since it was looked at."""
        asked = {shard: self._ask(shard, counts, str(look.others)) for shard, look in old.items()}
        self._refuse([shard for shard, look in asked.items() if look.version < NEWEST])

    def _refuse(self, busy: list[Shard]) -> None:
        """Raise StoreMisused where there are such shards."""
        if busy:
            shown = ", ".join(map(str, busy[:SHOWN])) + (" …" if len(busy) > SHOWN else "")
            raise StoreMisused(
                f"A caller of an earlier version adds or claims tasks in {shown}. Deploy this version to every "
                "function, bridge and client, then run the same command again"
            )

    def _rewrite(self, shard: Shard, counts: Mapping[Shard, int]) -> int:
        """Rewrite the old records of a shard; answers their number. Raises StoreUnavailable if the raise is lost."""
        done, how, is_left = 0, "again", True
        while is_left:
            look = self._ask(shard, counts, how)
            if look.version < NEWEST:
                raise StoreUnavailable(f"The store has lost the upgrade of {shard}: run the same command again")
            done, how, is_left = done + look.rewritten, "rewrite", look.is_left
            if look.rewritten:
                self._report(f"{shard}: rewrote {done} records")
        return done

    def _ask(self, shard: Shard, counts: Mapping[Shard, int], what: str = "") -> Looked:
        request = self._scripts.request(keys_of(self._namespace, shard), (), (what,), counts[shard])
        answer = self._scripts.evaluate("upgrade", request)
        if answer == RESHARDED:
            raise StoreMisused(f"The number of shards of {shard.queue} is being changed: run this again after that")
        _, _, version, found, rewritten, is_left = answer
        return Looked(version, found, rewritten, bool(is_left))

    def _counts(self) -> dict[Shard, int]:
        """Every shard on record, with the number of its queue's shards."""
        members = on_record(self._scripts.command("SMEMBERS", shards_key(self._namespace)))
        return dict(sorted(members))
