"""DUECOURSE_TARGETS and DUECOURSE_DEAD_TARGET, read without pydantic: the target of each kind, and of dead tasks."""

import re

from duecourse.domain.notification import RESERVED
from duecourse.domain.query import KIND as POLL
from duecourse.domain.task import Json
from duecourse.errors import FieldError, InvalidInput
from duecourse.wire.settings.variables import table_of

BUILT_IN = ("poll", "webhook", "reminder")
"""Kinds that duecourse works itself."""
TARGET = re.compile(
    r"inline|worker|lambda:[A-Za-z0-9_.:-]{1,170}|sqs:([A-Za-z0-9_-]{1,75}(\.fifo)?|https?://[!-~]{1,500})|amqp:[!-~]{1,255}"
)


def read_dead_target(value: str) -> str:
    """The target of notifications of dead tasks, which work for no function. Raises ValueError."""
    if value in {"inline", "worker"}:
        problem = f"{value} cannot receive notifications of dead tasks"
        raise ValueError(f"must be lambda:<function>, sqs:<queue> or amqp:<queue>: {problem}")
    return _target(value)


def read_targets(table: Json) -> dict[str, str]:
    """The target of each kind. Raises ValueError, or InvalidInput that names the wrong kinds."""
    targets = table_of(_target)(table)
    unknown = [kind for kind, target in targets.items() if target == "inline" and kind not in BUILT_IN]
    if unknown:
        raise ValueError(f"only {', '.join(BUILT_IN)} can be inline: give {', '.join(unknown)} another target")
    reserved = [kind for kind in targets if kind.startswith(RESERVED)]
    if reserved:
        raise ValueError(f"{RESERVED}… is reserved for completion notifications: rename {', '.join(reserved)}")
    if targets.get(POLL, "").startswith(("sqs:", "amqp:")):
        problem = "must be inline or lambda:<function>: a broker's confirm would count as the answer"
        raise InvalidInput([FieldError(POLL, problem)])
    return targets


def _target(value: Json) -> str:
    if not isinstance(value, str):
        raise ValueError("must be text")  # noqa: TRY004 - a wrong value, to its reader
    if not TARGET.fullmatch(value):
        raise ValueError("must be inline, worker, lambda:<function>, sqs:<queue> or amqp:<queue>")
    return value
