"""The request and answer of `/tasks/batch`."""

from collections.abc import Sequence
from typing import Annotated, NotRequired

from pydantic import ConfigDict, Field
from typing_extensions import TypedDict

from duecourse.domain.order import Item, Taken
from duecourse.domain.task import DEFAULT_TENANT, NewTask
from duecourse.domain.times import format_instant
from duecourse.errors import Conflict
from duecourse.wire.fields import Strict, Told
from duecourse.wire.tasks import EXAMPLE, AddTask

MAX_BATCH = 1_000
MAX_BATCH_BYTES = 6 * 1024 * 1024
"""What Lambda takes of one request, the event around it included."""


class AddBatch(Strict):
    """POST /tasks/batch: many tasks at once, in a body of at most 6 MiB."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"tasks": [EXAMPLE]}]})

    tasks: Annotated[
        list[AddTask], Field(min_length=1, max_length=MAX_BATCH, description="The tasks, each as POST /tasks takes it.")
    ]

    def new_tasks(self, tenant: str = DEFAULT_TENANT) -> list[NewTask]:
        """The tasks asked for."""
        return [task.task(tenant) for task in self.tasks]


class BatchItem(TypedDict):
    """What became of one task: it stands, due at `due_at`, or was `refused` for the state of what has its id."""

    id: Annotated[str, Field(description="The task's id.", examples=["order-7"])]
    created: Annotated[
        bool, Field(description="Whether this request made it; false where it stood or is refused.", examples=[True])
    ]
    due_at: NotRequired[Annotated[Told, Field(description="When it is due; not where it is refused.")]]
    refused: NotRequired[
        Annotated[str, Field(description="Why it was refused: the state of the task that has its id.")]
    ]
    detail: NotRequired[Annotated[str, Field(description="The refusal in words.")]]


class BatchAnswer(TypedDict):
    """What became of each task, in the order asked for."""

    tasks: Annotated[list[BatchItem], Field(description="What became of each task, in the order asked for.")]


def show_batch(ids: Sequence[str], items: Sequence[Item]) -> BatchAnswer:
    """What became of the tasks of these ids."""
    return {"tasks": [_show(id, item) for id, item in zip(ids, items, strict=True)]}


def _show(id: str, item: Item) -> BatchItem:
    if isinstance(item, Taken):
        return {"id": id, "created": item.created, "due_at": format_instant(item.task.due_at)}
    return {
        "id": id,
        "created": False,
        "refused": item.reason if isinstance(item, Conflict) else "refused",
        "detail": str(item),
    }
