"""The request and answer of `/tasks/batch`."""

from collections.abc import Callable, Sequence
from typing import Annotated, NotRequired

from pydantic import ConfigDict, Field
from typing_extensions import TypedDict

from duecourse.domain.order import AddResult, Item
from duecourse.domain.task import DEFAULT_TENANT, NewTask, new_id
from duecourse.domain.times import format_instant
from duecourse.errors import BeyondQuota, Conflict, QuotaExceeded
from duecourse.wire.http.fields import ShownInstant, Strict, about
from duecourse.wire.http.tasks import EXAMPLE, AddTask

MAX_BATCH = 1_000
MAX_BATCH_BYTES = 6 * 1024 * 1024
"""Maximum size of a request at Lambda, the event around it included."""


class AddBatch(Strict):
    """Body of `POST /tasks/batch`: up to 1,000 tasks in at most 3 MB, or up to 6 MiB where Lambda's limit allows it.

    Lambda counts each quote and each backslash of the body twice. A body has at most 400,000 values.
    """

    model_config = ConfigDict(json_schema_extra={"examples": [{"tasks": [EXAMPLE]}]})

    tasks: list[AddTask] = Field(
        min_length=1, max_length=MAX_BATCH, description="The tasks, each in the form of `POST /tasks`; at most 1,000."
    )

    def new_tasks(self, tenant: str = DEFAULT_TENANT, name: Callable[[], str] = new_id) -> list[NewTask]:
        """The tasks asked for, with ids of `name` where none were given."""
        return [task.task(tenant, name) for task in self.tasks]


class BatchItem(TypedDict):
    """Result for one task: added, already there, or rejected with its reason in `refused`."""

    id: Annotated[str, about("Id of the task.", "order-7")]
    created: Annotated[
        bool,
        about("True if this request added the task; false if the id already existed or the task was rejected.", True),
    ]
    due_at: NotRequired[Annotated[ShownInstant, about("Due time; absent if the task was rejected.")]]
    refused: NotRequired[
        Annotated[str, about("Reason of the rejection: the state of the task that has this id, or `quota`.")]
    ]
    quota: NotRequired[
        Annotated[str, about("Name of the tenant's quota that is used up, or too small.", "tenant_max_pending")]
    ]
    detail: NotRequired[Annotated[str, about("The rejection in words.")]]


class BatchAnswer(TypedDict):
    """Result for each task, in the order of the request."""

    tasks: Annotated[list[BatchItem], about("Result for each task, in the order of the request.")]


def show_batch(ids: Sequence[str], items: Sequence[Item]) -> BatchAnswer:
    """Results for the tasks of these ids."""
    return {"tasks": [_show(id, item) for id, item in zip(ids, items, strict=True)]}


def _show(id: str, item: Item) -> BatchItem:
    if isinstance(item, AddResult):
        return {"id": id, "created": item.created, "due_at": format_instant(item.task.due_at)}
    if isinstance(item, QuotaExceeded | BeyondQuota):
        return {"id": id, "created": False, "refused": "quota", "quota": item.quota, "detail": str(item)}
    return {
        "id": id,
        "created": False,
        "refused": item.reason if isinstance(item, Conflict) else "refused",
        "detail": str(item),
    }
