"""How one shard of a queue is set, what its limits allow now, and how late its tasks were claimed, within one batch."""

import json
from struct import Struct

from duecourse.adapters.keyvalue.lines import FOREVER, Line
from duecourse.adapters.keyvalue.map import Batch
from duecourse.domain.lateness import SLOT_MS, SLOTS, bucket_of
from duecourse.domain.queues import QueueSettings, Rate, share
from duecourse.domain.task import Shard

LOG = Struct(">QQ")
SLOT = Struct(">Q")
COUNT = Struct(">HI")


class Limits:
    """The settings of a queue and the log of its claims; `settings` has this shard's part of `count`."""

    def __init__(self, batch: Batch, shard: Shard, count: int, now: int) -> None:
        self._batch, self._name, self._now = batch, str(shard).encode(), now
        self._number, self._count = shard.number, count
        stored = batch.get(self._start(b"settings"))
        self.whole = _settings(stored) if stored else QueueSettings()
        self.settings = share(self.whole, shard.number, count)
        log = batch.get(self._start(b"logged"))
        self._logged, floor = LOG.unpack(log) if log else (0, FOREVER)
        self._log = Line(batch, self._start(b"log"), floor)

    def set(self, settings: QueueSettings) -> None:
        """Set the whole queue."""
        self._batch.put(self._start(b"settings"), json.dumps(settings).encode())
        if self.whole.rate and not settings.rate:
            self._forget(FOREVER)
        self.whole, self.settings = settings, share(settings, self._number, self._count)

    def room(self, wanted: int, running: int) -> int:
        """How many of `wanted` leases may begin where `running` are there."""
        if self.settings.paused:
            return 0
        if self.settings.max_running is not None:
            wanted = min(wanted, self.settings.max_running - running)
        if self.settings.rate:
            self._slide(self.settings.rate)
            wanted = min(wanted, self.settings.rate.most - self._logged)
        return max(0, wanted)

    def is_full(self, running: int) -> bool:
        """Whether no more may run."""
        return self.settings.max_running is not None and running >= self.settings.max_running

    def opens_at(self) -> int:
        """When the rate next lets a task be claimed, 0 where it does."""
        rate, at = self.settings.rate, 0
        if not rate or self._logged < rate.most:
            return 0
        over = self._logged - rate.most + 1
        for claimed_at, entry in self._log.until(FOREVER):
            at, over = claimed_at + rate.per_ms, over - _claimed(entry)
            if over <= 0:
                break
        return at

    def log(self, fence: int, lateness: list[int]) -> None:
        """Keep that tasks so late (ms, below 0 for early) were claimed, the first of them under this fence."""
        if self.settings.rate and lateness:
            self._log.put(self._now, f"{fence}:{len(lateness)}")
            self._logged += len(lateness)
            self._save()
        counts = self._counts(self._now // SLOT_MS)
        for late_ms in lateness:
            if late_ms >= 0:
                counts[bucket_of(late_ms)] = counts.get(bucket_of(late_ms), 0) + 1
        if counts:
            packed = b"".join(COUNT.pack(bucket, count) for bucket, count in counts.items())
            slot = self._now // SLOT_MS
            self._batch.put(self._slot_key(slot), SLOT.pack(slot) + packed)

    def lateness(self) -> list[dict[int, int]]:
        """How late the tasks of the last hour were claimed, a histogram a slot."""
        newest = self._now // SLOT_MS
        return [self._counts(slot) for slot in range(newest - SLOTS + 1, newest + 1)]

    def _slide(self, rate: Rate) -> None:
        """Forget what has left the window; where the clock was put back, what is ahead of it counts from now."""
        self._forget(self._now - rate.per_ms)
        for at, entry in list(self._log.until(FOREVER, since=self._now + 1)):
            self._log.delete(at, entry)
            self._log.put(self._now, entry)
            self._save()

    def _forget(self, until: int) -> None:
        gone = list(self._log.until(until))
        for at, entry in gone:
            self._log.delete(at, entry)
            self._logged -= _claimed(entry)
        if gone:
            self._log.first()
            self._save()

    def _save(self) -> None:
        self._batch.put(self._start(b"logged"), LOG.pack(self._logged, self._log.floor))

    def _counts(self, slot: int) -> dict[int, int]:
        stored = self._batch.get(self._slot_key(slot)) or SLOT.pack(slot)
        return dict(COUNT.iter_unpack(stored[SLOT.size :])) if SLOT.unpack_from(stored)[0] == slot else {}

    def _slot_key(self, slot: int) -> bytes:
        return self._start(b"late") + (slot % SLOTS).to_bytes(1)

    def _start(self, part: bytes) -> bytes:
        return part + b"\0" + self._name + b"\0"


def _claimed(entry: str) -> int:
    return int(entry.partition(":")[2])


def _settings(stored: bytes) -> QueueSettings:
    read = QueueSettings(*json.loads(stored))
    return read._replace(rate=Rate(*read.rate) if read.rate else None)
