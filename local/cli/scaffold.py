"""A new function written into a project: its folder, its places in template.yaml, a saved event."""

import json
import keyword
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import cfn_flip  # type: ignore[import-untyped]

from duecourse.domain.task import NAME_PATTERN
from duecourse.settings import BUILT_IN

from ..stack.problems import HarnessError

NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
MAX_NAME = 40
TARGETS = '"reminder": "${Reminders}"'
"""Text that only those lines of the template contain that define the targets."""
BEFORE_RESOURCE = "\n  WorkPolicy:\n"
BEFORE_STATEMENT = "          - !If\n            - HasTargetArns\n"

APP = '''"""The kind `{kind}`, whose work is to be written here."""

from duecourse import Done, Task, task_handler


@task_handler
def handler(task: Task) -> Done:
    """Work one task under a lease; an exception is retried with backoff."""
    return Done({{"seen": task.payload}})
'''

RESOURCE = """
  {id}:
    Type: AWS::Serverless::Function
    Properties:
      Description: Works tasks of the kind {kind}
      CodeUri: functions/{name}
      Timeout: 30
      # An event that waited longer is given up before its delivery lapses: its tasks are handed over anew.
      EventInvokeConfig:
        MaximumEventAgeInSeconds: 60
        DestinationConfig:
          OnFailure:
            Type: SQS
            Destination: !GetAtt UndeliveredQueue.Arn
      Environment:
        Variables:
          # It hands nothing on, and a resource cannot refer to itself.
          DUECOURSE_TARGETS: ""
      Policies:
        - Statement:
            - Sid: KeepResults
              Effect: Allow
              Action: dynamodb:PutItem
              Resource: !GetAtt ResultsTable.Arn
"""

STATEMENT = """          - Sid: Invoke{id}
            Effect: Allow
            Action: lambda:InvokeFunction
            Resource: !GetAtt {id}.Arn
"""


class New(NamedTuple):
    """A function to be written: its folder's name, and the kind that it works."""

    name: str
    kind: str

    @property
    def id(self) -> str:
        """Logical id in the template: SendReportFunction for `send_report`."""
        return "".join(part.capitalize() for part in self.name.split("_")) + "Function"


def write(root: Path, new: New) -> list[Path]:
    """Write the function into the project at `root`; answers the files written or changed.

    Raises HarnessError, with nothing written, for a name or kind that is taken or not fit.
    """
    template = root / "template.yaml"
    text = template.read_text()
    _check_name(root, new)
    _check_kind(text, new)
    files = {
        root / "functions" / new.name / "app.py": APP.format(kind=new.kind),
        root / "events" / new.name / "one_task.json": json.dumps(_event(new), indent=2) + "\n",
        template: described(text, new),
    }
    for path, content in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return list(files)


def described(template: str, new: New) -> str:
    """The template's text with the function in it, each other line as it was. Raises HarnessError."""
    if new.id in _declared(template):
        raise HarnessError(f"template.yaml already has a {new.id}: choose another name")
    lines = [_with_target(line, new) if TARGETS in line else line for line in template.splitlines(keepends=True)]
    text = _insert("".join(lines), BEFORE_RESOURCE, RESOURCE.format(**new._asdict(), id=new.id))
    text = _insert(text, BEFORE_STATEMENT, STATEMENT.format(id=new.id))
    if new.id not in _declared(text):
        raise HarnessError(
            "the resource cannot be added to template.yaml: write it by hand, as docs/how-to/own-function.md says"
        )
    return text


def _check_name(root: Path, new: New) -> None:
    if not NAME.fullmatch(new.name) or len(new.name) > MAX_NAME or keyword.iskeyword(new.name):
        raise HarnessError(
            f"NAME: {new.name!r} must be up to {MAX_NAME} characters of a-z 0-9 _, beginning with a letter: report"
        )
    for folder in ("functions", "events"):
        if (root / folder / new.name).exists():
            raise HarnessError(f"NAME: {folder}/{new.name} already exists: choose another name")


def _check_kind(template: str, new: New) -> None:
    if not re.fullmatch(NAME_PATTERN, new.kind):
        raise HarnessError(f"KIND: {new.kind!r} must be 1 to 64 characters of A-Z a-z 0-9 . _ : @ -")
    taken = any(f'"{new.kind}": ' in line for line in template.splitlines() if TARGETS in line)
    if taken or new.kind in BUILT_IN:
        raise HarnessError(f"KIND: {new.kind} already has a target: choose another kind with --kind")


def _declared(template: str) -> Mapping[str, object]:
    found: Mapping[str, object] = cfn_flip.load_yaml(template)["Resources"]
    return found


def _with_target(line: str, new: New) -> str:
    return line.replace("'{", f"""'{{"{new.kind}": "lambda:${{{new.id}}}", """, 1)


def _insert(text: str, before: str, added: str) -> str:
    if text.count(before) != 1 or TARGETS not in text:
        raise HarnessError(
            f"template.yaml has no single {before.strip()!r} as a place for the resource: write it by hand"
        )
    return text.replace(before, added + before, 1)


def _event(new: New) -> Mapping[str, object]:
    task = {
        "id": f"{new.name}-1",
        "queue": "default",
        "tenant": "-",
        "kind": new.kind,
        "group": "",
        "payload": {"hello": "world"},
        "state": None,
        "run": 1,
        "attempt": 1,
        "due_at": 1_790_000_000_000,
        "lease": {"token": "0000000000080011223344556677", "expires_at": 1_790_000_030_000},
        "idempotency_key": f"{new.name}-1:7",
    }
    return {"source": "duecourse", "version": "1", "tasks": [task]}
