"""Repair of a damaged `leveldb://` folder, in a copy: LevelDB collects its entries, then indexes are rebuilt."""

import os
import re
import shutil
from contextlib import ExitStack, closing, nullcontext, suppress
from pathlib import Path
from typing import Any, NamedTuple

from duecourse.errors import DuecourseError
from duecourse.ledger.embedded.in_process_redis import EmbeddedRedis, Server
from duecourse.ledger.embedded.ledger import SystemClock
from duecourse.ledger.embedded.leveldb import LAYOUT, LAYOUT_KEY, LOCK, LevelDisk, library, loaded, lock
from duecourse.ledger.keys import Keys, keys_of, parse_shards, shard_of_tasks_key, shards_key
from duecourse.ledger.layout import VERSION
from duecourse.ledger.maintenance import APART, SUCCESSOR, Mend
from duecourse.ledger.queue_history import FIELDS as HISTORY
from duecourse.ledger.queue_history import unpack_history
from duecourse.ledger.record import UNREADABLE, body_field, unpack
from duecourse.ledger.task import Shard, Status
from duecourse.settings import Settings

from ..errors import HarnessError

NAMESPACE = "duecourse"
"""Namespace of every ledger in a folder."""
HOLDERS = shutil.ignore_patterns("LOCK", "LOG", "LOG.old", LOCK)
"""Files about who has the folder open; a copy gets its own."""


class Repaired(NamedTuple):
    """Numbers of a repaired copy: its tasks, entries that were left out, and records that cannot be read."""

    tasks: int
    left_out: int
    unreadable: int


def repair(folder: Path, copy: Path) -> Repaired:
    """Copy the folder to `copy`, which must not exist, and repair the copy; the folder stays as it is.

    Raises HarnessError where the folder holds no database, is in use, or nothing can be repaired.
    """
    _check(folder, copy)
    try:
        return _repaired(folder, copy, library())
    except DuecourseError as error:
        raise HarnessError(f"{folder} cannot be repaired: {error}") from error


def _repaired(folder: Path, copy: Path, plyvel: Any) -> Repaired:
    with ExitStack() as failed:
        failed.callback(shutil.rmtree, copy, ignore_errors=True)
        # Only a folder that was opened has the lock; none is made in one that a user wants to keep as it is.
        with lock(folder) if (folder / LOCK).exists() else nullcontext():
            shutil.copytree(folder, copy, ignore=HOLDERS)
        try:
            # With the checks, entries of a block that is damaged are left out, and the others of its table are copied.
            plyvel.repair_db(str(copy), paranoid_checks=True)
            with plyvel.DB(str(copy)) as database:
                left_out, keys = _clean(database)
        except plyvel.Error as error:
            raise HarnessError(f"{folder} cannot be repaired: {error}") from error
        done = _mended(copy, left_out, keys)
        failed.pop_all()
    return done


def _check(folder: Path, copy: Path) -> None:
    if copy.exists():
        raise HarnessError(f"{copy} exists already: remove it, or give --output")
    if not folder.is_dir() or not any(re.fullmatch(r"\d+\.(log|ldb|sst)", name) for name in os.listdir(folder)):
        raise HarnessError(f"{folder} holds no ledger of leveldb://: give the folder of one")


def _clean(database: Any) -> tuple[int, set[str]]:
    """Remove what is no entry of a ledger; how many were removed, and the ledger's keys.

    A folder without its layout gets this release's: records of another version are then counted as unreadable.
    """
    layout = database.get(LAYOUT_KEY)
    if layout not in (None, LAYOUT):
        return 0, set()  # the opening of the copy rejects it
    wrong, keys = [], set[bytes]()
    for name, value in database.iterator(verify_checksums=True):
        try:
            (_, key, _), _ = loaded(name, value)
        except ValueError:
            wrong += [name] * (name != LAYOUT_KEY)
        else:
            keys.add(key)
    if not layout:
        if not keys:
            raise HarnessError("no task, and no layout of a ledger, is left")
        database.put(LAYOUT_KEY, LAYOUT)
    for name in wrong:
        database.delete(name)
    return len(wrong), {key.decode(errors="replace") for key in keys}


def _mended(copy: Path, left_out: int, keys: set[str]) -> Repaired:
    """Rebuild the indexes of the copy, and count its tasks."""
    clock = SystemClock()
    with closing(Server(clock, LevelDisk(str(copy)))) as server:
        client = EmbeddedRedis(server)
        known = dict(parse_shards(client.execute_command("SMEMBERS", shards_key(NAMESPACE))))
        for shard in filter(None, (shard_of_tasks_key(NAMESPACE, key) for key in keys)):
            _recount(client, keys_of(NAMESPACE, shard))
            _unlist(client, shard, keys)
            if shard not in known:
                count = client.execute_command("HGET", keys_of(NAMESPACE, shard).meta, "shards")
                client.execute_command("SADD", shards_key(NAMESPACE), f"{shard}/{int(count or 1)}")
        mended = Mend(client, NAMESPACE, Settings().lease_ms, lambda _: None, clock).run()
    return Repaired(mended.tasks, left_out, mended.unreadable)


def _recount(client: EmbeddedRedis, keys: Keys) -> None:
    """Count what a shard has besides its tasks, without payloads that no record needs any more.

    The version of its records is written again: no script runs in a shard that has lost it.
    """
    found = client.execute_command("HGETALL", keys.tasks)
    for name in [name for name in found if not name.isascii()]:  # no id has such a letter: the name is damaged
        client.execute_command("HDEL", keys.tasks, name)
        del found[name]
    names = {name.decode(): data for name, data in found.items()}
    records = {name: data for name, data in names.items() if APART not in name}
    needed = {body_field(name.removesuffix(SUCCESSOR), data) for name, data in records.items()}
    bodies = {name for name in names if APART in name}
    for name in bodies - needed:
        client.execute_command("HDEL", keys.tasks, name)
    counts = {"bodies": len(bodies & needed), "successors": sum(name.endswith(SUCCESSOR) for name in records)}
    for field, count in (counts | {"layout": VERSION}).items():
        client.execute_command("HSET", keys.meta, field, count)
    _check_history(client, keys)


def _check_history(client: EmbeddedRedis, keys: Keys) -> None:
    """Forget numbers over time that cannot be read."""
    texts = client.execute_command("HMGET", keys.history, *HISTORY)
    numbers = client.execute_command("HGET", keys.meta, "numbers")
    try:
        unpack_history(texts, numbers)
    except ValueError:
        client.execute_command("DEL", keys.history)
        client.execute_command("HDEL", keys.meta, "numbers")


def _unlist(client: EmbeddedRedis, shard: Shard, names: set[str]) -> None:
    """Remove entries of indexes that records contradict; `Mend` puts back those that follow from records."""
    keys = keys_of(NAMESPACE, shard)
    places: dict[Status, list[bytes]] = {Status.LEASED: [], Status.DONE: [], Status.DEAD: []}
    for sid, data in client.execute_command("HGETALL", keys.tasks).items():
        with suppress(*UNREADABLE):
            status = unpack(shard.queue, sid.decode(), data).status
            places.get(Status.DONE if status is Status.CANCELLED else status, []).append(sid)
    for status, sids in places.items():
        place = getattr(keys, status.value)
        for sid in {*client.execute_command("ZRANGE", place, 0, -1)} - {*sids}:
            client.execute_command("ZREM", place, sid)
    due = [name for name in names if name.startswith(keys.due(""))]
    client.execute_command("DEL", *due, keys.heads, keys.ring, keys.parked, keys.groups)
