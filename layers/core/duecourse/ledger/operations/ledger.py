"""The ledger: every operation, on Redis 6.2 or newer or Valkey.

A number of a queue may be one of `Stats` already (`ledger/queue.py`): verbs add up its shards.

To add an operation, write its method in the file of its group in this folder. Add tests to the `test_rules_*.py` of
its capability, and rows to the model of the property test, `tests/support/ledger_model.py`. Its script is
`lua/<verb>.lua`, headed by one sentence, KEYS, ARGV and RETURNS; rejections are negative numbers. Its values are in
`operation_types.py`, and `script_codec.py` makes its answer one of them.

A script over many tasks stops once `shard.weight >= record.BYTES`, and answers for those that it did. It is called
again for the others (`in_steps`), and has a row in `tests/ledger/test_redis_script_bounds.py`. A script that must run
while Redis is out of memory begins with ZREM. One that ends tasks notes each end by `record.put` or `record.note_end`,
and announces it by `announce.ends`. It has a row in ENDS of `tests/tasks/test_rules_waiting.py`, and of
`tests/schedules/test_rules_schedules.py`. Every script that changes a shard ends in `bell.hang()`. Time is TIME's. No
key except the bell has a TTL.

A verb that must not be sent twice is in ONCE (`script_calls.py`), one that replicas must have in REPLICATED
(`base.py`). One that writes nothing is in READS (`script_calls.py`), and in READ_ONLY of
`tests/ledger/test_rules_nothing_left.py`. A command of Redis that no script used before belongs to Commands of
`embedded/in_process_redis.py` too. A verb that changes tasks calls the log; `task_log_lines.py` names those that do
not.
"""

from duecourse.base.times import Clock
from duecourse.ledger.connect import Client
from duecourse.ledger.operations.adds import AddOperations
from duecourse.ledger.operations.base import ScriptRunner
from duecourse.ledger.operations.completions import WaitOperations
from duecourse.ledger.operations.leases import LeaseOperations
from duecourse.ledger.operations.namespace_records import (
    Deployments,
    FileRecord,
    IdempotencyStore,
    InFlight,
    Rounds,
    SealKeys,
    Warmth,
)
from duecourse.ledger.operations.queues import QueueOperations
from duecourse.ledger.operations.schedules import ScheduleOperations
from duecourse.ledger.operations.tasks import TaskOperations
from duecourse.ledger.operations.upkeep import UpkeepOperations
from duecourse.ledger.sharding import Sharding


class Ledger(
    AddOperations,
    TaskOperations,
    LeaseOperations,
    ScheduleOperations,
    QueueOperations,
    UpkeepOperations,
    WaitOperations,
):
    """Tasks by due time, in shards, on one Redis, a Sentinel's primary or a cluster.

    Each base class is one group of operations. `add` is in adds.py, `claim` and `settle` in leases.py, `put_schedule`
    and `fire` in schedules.py, `sweep` in upkeep.py. Every operation is one atomic step on one shard, a Lua script: an
    answer has happened, and a rejected request has changed nothing. A great add may be several such steps; repeated
    after an interruption, it adds nothing twice. Time is the server's own, or that of `travel`, for tests: the shards
    of such a ledger are marked so, and hang no bell.

    The step that ends a task, done or dead, also adds its completion notifications (ledger/task.py): for its own
    `notify`, and for any death with `deaths`. `wait` is the number of replicas that must have adds, moves, cancels,
    replays and settings before the caller has an answer. A settle that a failover loses is a run again, as after a
    lapsed lease. Each tenant may make `max_queues` queues, 0 for any number. `quotas` are the deployment's
    (quotas_text); None leaves those that shards have.

    Each operation raises StoreUnavailable if the server does not answer, and ValueError for more tasks at a time than
    it takes. It raises WrongShards if a queue has another number of shards than `sharding` says, and OtherVersion if
    the records are of another version. It raises StoreMisused if the server rejects a command: for a login without the
    right, or a foreign value under a key. That may pass.
    """

    def __init__(
        self,
        client: Client,
        namespace: str = "duecourse",
        *,
        sharding: Sharding | None = None,
        travel: Clock | None = None,
        wait: int = 0,
        deaths: bool = False,
        max_queues: int = 0,
        quotas: str | None = None,
    ) -> None:
        runner = ScriptRunner(client, namespace, sharding or Sharding(), travel, wait, max_queues, quotas)
        super().__init__(runner, deaths=deaths)

    def idempotency(self) -> IdempotencyStore:
        """Records of requests with an Idempotency-Key, kept with the tasks and by the same clock."""
        return IdempotencyStore(self._scripts, self._namespace, self._runner.wait)

    def rounds(self) -> Rounds:
        """Instants at which the parts of the shards were last swept, kept with the tasks."""
        return Rounds(self._scripts, self._namespace)

    def schedule_files(self) -> FileRecord:
        """Record of the schedule files of deployments."""
        return FileRecord(self._scripts, self._namespace)

    def deployments(self) -> Deployments:
        """Kinds and results table of the deployments, by the same clock."""
        return Deployments(self._scripts, self._namespace)

    def in_flight(self) -> InFlight:
        """Queries whose requests wait for a call, by the same clock."""
        return InFlight(self._scripts, self._namespace)

    def seal_keys(self) -> SealKeys:
        """Data keys that seal credentials, kept with the tasks."""
        return SealKeys(self._runner)

    def warmth(self) -> Warmth:
        """Kinds that come due soon, and functions that were invoked lately, by the same clock."""
        return Warmth(self._runner)
