"""Results in a DynamoDB table, one item a task.

| attribute | type | holds |
| --- | --- | --- |
| id | S, partition key | `<queue>/<tenant>/<task id>` |
| generation, fence | N | the lease under which the result came about |
| result | S | JSON text |
| stored_at | N | epoch milliseconds |
| expires_at | N, the table's TTL attribute | epoch seconds |
"""

import json
import os
import time
from typing import TYPE_CHECKING, Any, Self

from duecourse.adapters.aws.clients import LazyClient
from duecourse.domain.task import Task
from duecourse.errors import ResultsUnavailable
from duecourse.ports.results import PATIENCE_MS, Result

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

ATTEMPTS = 2
BACKOFF_MS = 1_000
"""Longest wait of botocore before the second attempt."""
CONNECT_MS = 500
READ_MS = (PATIENCE_MS - BACKOFF_MS) // ATTEMPTS - CONNECT_MS

# Fences only grow within a shard, and generations are drawn from the same counter, so the fence alone decides. An item
# that is older than the task itself stems from a ledger that was lost since, with its counter: it must not win forever.
_UNLESS_NEWER = "attribute_not_exists(id) OR fence <= :fence OR stored_at < :created_at OR expires_at <= :now"


class DynamoDbResults:
    """A Results in the table `table_name`, where each result stays for `retention_ms`.

    The region is AWS's own variable's, unless it is given.
    """

    def __init__(
        self, table_name: str, retention_ms: int, client: "DynamoDBClient | None" = None, *, region: str = ""
    ) -> None:
        self._table = table_name
        self._region = region
        self._retention_ms = retention_ms
        self._client = client or LazyClient(
            "dynamodb",
            attempts=ATTEMPTS,
            connect_timeout_s=CONNECT_MS / 1000,
            read_timeout_s=READ_MS / 1000,
            region=region,
        )

    @classmethod
    def at(cls, place: str, retention_ms: int) -> Self:
        """The table of a place."""
        table, _, region = place.partition("@")
        return cls(table, retention_ms, region=region)

    @property
    def place(self) -> str:
        """See Results: the table's name, and its region where that is known."""
        region = self._region or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
        return f"{self._table}@{region}" if region else self._table

    def put(self, task: Task, result_json: str, now: int) -> bool:
        """Keep the task's result; False, and nothing changed, where a newer one is there.

        Raises ResultsUnavailable.
        """
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            return self._put(task, self._item(task, result_json, now), now)
        except (BotoCoreError, ClientError) as error:
            raise ResultsUnavailable(f"the results table {self.place} did not take it: {error}") from error

    def _put(self, task: Task, item: dict[str, Any], now: int) -> bool:
        values = {":fence": task.fence, ":created_at": task.created_at, ":now": now // 1000}
        try:
            self._client.put_item(
                TableName=self._table,
                Item=item,
                ConditionExpression=_UNLESS_NEWER,
                ExpressionAttributeValues={name: _number(value) for name, value in values.items()},
            )
        except self._client.exceptions.ConditionalCheckFailedException:
            return False
        return True

    def _item(self, task: Task, result_json: str, now: int) -> dict[str, Any]:
        return {
            "id": {"S": _key(task.queue, task.id, task.tenant)},
            "generation": _number(task.generation),
            "fence": _number(task.fence),
            "result": {"S": result_json},
            "stored_at": _number(now),
            "expires_at": _number((now + self._retention_ms) // 1000),
        }

    def get(self, queue: str, id: str, tenant: str) -> Result | None:
        """The task's result; None without one, or with one whose time is over. Raises ResultsUnavailable."""
        from botocore.exceptions import BotoCoreError, ClientError

        key = {"id": {"S": _key(queue, id, tenant)}}
        try:
            item = self._client.get_item(TableName=self._table, Key=key, ConsistentRead=True).get("Item")
        except (BotoCoreError, ClientError) as error:
            raise ResultsUnavailable(f"the results table {self.place} did not answer: {error}") from error
        return _result(item) if item else None


def _result(item: Any) -> Result | None:
    # DynamoDB removes an expired item when it comes to it, up to days later.
    if int(item["expires_at"]["N"]) <= time.time():
        return None
    return Result(json.loads(item["result"]["S"]), int(item["fence"]["N"]), int(item["stored_at"]["N"]))


def _key(queue: str, id: str, tenant: str) -> str:
    return f"{queue}/{tenant}/{id}"


def _number(value: int) -> dict[str, str]:
    return {"N": str(value)}
