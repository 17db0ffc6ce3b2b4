"""Files of a new function: its folder, its places in template.yaml, a saved event; in a clone or an own project."""

import json
import keyword
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from duecourse.base.ids import NAME_PATTERN
from duecourse.settings import BUILT_IN, read_targets

from ..errors import HarnessError
from ..harness.template import load_yaml
from ..project.bundle import COMPILED, functions
from ..project.place import is_nested
from ..project.template_marks import BEGIN, END

APP = '''"""The kind `{kind}`, whose work is to be written here."""

from duecourse import Done, Task, task_handler


@task_handler
def handler(task: Task) -> Done:
    """Work one task under a lease; an exception is retried with backoff."""
    return Done({{"seen": task.payload}})
'''

TEST = '''"""The kind `{kind}`."""

from duecourse import Done
from duecourse.testing import Duecourse, make_task, run
from functions.{name}.app import handler


def test_one_task() -> None:
    ran = run(handler, make_task(kind="{kind}", payload={{"hello": "world"}}))
    assert ran.outcome == Done({{"seen": {{"hello": "world"}}}})


def test_a_task_that_is_due_in_30_days(duecourse: Duecourse) -> None:
    duecourse.handle("{kind}", handler)
    task = duecourse.add(kind="{kind}", payload={{"hello": "world"}}, delay="P30D")
    assert duecourse.advance("30d") == 1
    assert duecourse.client.get(task.id).result == {{"seen": {{"hello": "world"}}}}
'''

REQUIREMENTS = """\
# duecourse build installs the version of the bundle.
duecourse
"""

CLONE_TARGET = """\
            - !Sub ', "{kind}": "lambda:${{{id}}}"'
"""

CLONE_RESOURCE = """\
  {id}:
    Type: AWS::Serverless::Function
    Properties:
      Description: "Works tasks of the kind {kind}"
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
        - !If [ReadsSecrets, !Ref SecretsPolicy, !Ref AWS::NoValue]
        - !If [HasKey, !Ref KeyPolicy, !Ref AWS::NoValue]
        - Statement:
            - Sid: KeepResults
              Effect: Allow
              Action: dynamodb:PutItem
              Resource: !GetAtt ResultsTable.Arn
"""

CLONE_STATEMENT = """\
          - Sid: Invoke{id}
            Effect: Allow
            Action: lambda:InvokeFunction
            Resource: !GetAtt {id}.Arn
"""

INIT_RESOURCE = """\
  {id}:
    Type: AWS::Serverless::Function
    Properties:
      Description: "Works tasks of the kind {kind}"
      FunctionName: !Sub ${{AWS::StackName}}-{name}
      CodeUri: functions/{name}
      Policies:
        - Statement:
            - Sid: KeepResults
              Effect: Allow
              Action: dynamodb:PutItem
              Resource: !GetAtt Duecourse.Outputs.ResultsTableArn

"""

INIT_TARGET = """\
            - !Sub '"{kind}": "lambda:${{AWS::StackName}}-{name}"'
"""
INIT_ARN = """\
            - !Sub arn:${{AWS::Partition}}:lambda:${{AWS::Region}}:${{AWS::AccountId}}:function:\
${{AWS::StackName}}-{name}
"""


class Insertion(NamedTuple):
    """Text for a template, and the place where it belongs: a pattern of a position."""

    at: str
    text: str


class ProjectLayout(NamedTuple):
    """The files of a function besides its event, by path, and its insertions into the template."""

    files: Mapping[str, str]
    insertions: tuple[Insertion, ...]


def _marked(text: str) -> str:
    """The text between the comments that mark it as the user's own (project/template_marks.py)."""
    indent = " " * (len(text) - len(text.lstrip()))
    return f"{indent}{BEGIN}{text}{indent}{END}"


CLONE = ProjectLayout(
    files={"functions/{name}/app.py": APP},
    insertions=(
        Insertion(r'(?=            - !If \[HasTargets, !Sub ", \$\{Targets\}", ""\]\n)', _marked(CLONE_TARGET)),
        Insertion(r"(?<=\n)(?=  WorkPolicy:\n)", _marked(CLONE_RESOURCE) + "\n"),
        Insertion(r"(?=          - !If\n            - HasTargetArns\n)", _marked(CLONE_STATEMENT)),
    ),
)
INIT = ProjectLayout(
    files={
        "functions/{name}/app.py": APP,
        "functions/{name}/requirements.txt": REQUIREMENTS,
        "tests/test_{name}.py": TEST,
    },
    insertions=(
        Insertion(r'(?<=\n        Targets: !Join\n          - ", "\n          -\n)', INIT_TARGET),
        Insertion(r'(?<=\n        TargetArns: !Join\n          - ","\n          -\n)', INIT_ARN),
        Insertion(r"(?<=\nResources:\n)", INIT_RESOURCE),
    ),
)


def layout_of(template: str) -> ProjectLayout:
    """Layout of the project with this template."""
    return INIT if is_nested(template) else CLONE


def inserted(insertion: Insertion, template: str, placeholders: Mapping[str, str]) -> str | None:
    """The template with the text in its place; None where it has no such place."""
    text = insertion.text.format(**placeholders)
    found, count = re.subn(insertion.at, lambda _: text, template)
    return found if count else None


NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
MAX_NAME = 40


class NewFunction(NamedTuple):
    """A function to be written: its folder's name, and the kind that it works."""

    name: str
    kind: str

    @property
    def id(self) -> str:
        """Logical id in the template: SendReportFunction for `send_report`."""
        return "".join(part.capitalize() for part in self.name.split("_")) + "Function"

    @property
    def placeholders(self) -> Mapping[str, str]:
        """Values for the placeholders of the texts."""
        return {**self._asdict(), "id": self.id}


def write_function(root: Path, new: NewFunction) -> list[Path]:
    """Write the function into the project at `root`; answers the files written or changed.

    Raises HarnessError, with nothing written, for a name or kind that is taken or not fit.
    """
    files = planned(root, (root / "template.yaml").read_text(), new)
    write_all(files)
    return list(files)


def planned(root: Path, template: str, new: NewFunction) -> dict[Path, str]:
    """The files of the function and the changed template, nothing written. Raises HarnessError, as `write` does."""
    layout = layout_of(template).files
    own = {root / path.format(**new.placeholders): made.format(**new.placeholders) for path, made in layout.items()}
    _check_name(root, new, own)
    _check_kind(template, new)
    event = {root / "events" / new.name / "one_task.json": json.dumps(_event(new), indent=2) + "\n"}
    return {**own, **event, root / "template.yaml": with_function(template, new)}


def write_all(files: Mapping[Path, str]) -> None:
    """Write all files, or none: after an error each path is as it was."""
    before = {path: path.read_bytes() for path in files if path.is_file()}
    folders = [folder for path in files for folder in path.parents if not folder.exists()]
    try:
        for path, text in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    except BaseException:
        _restore(files, before, folders)
        raise


def _restore(paths: Iterable[Path], before: Mapping[Path, bytes], folders: Iterable[Path]) -> None:
    for path in paths:
        if path in before:
            path.write_bytes(before[path])
        else:
            with suppress(OSError):  # a folder above it is a file, or was not made
                path.unlink()
    for folder in sorted(set(folders), key=lambda folder: len(folder.parts), reverse=True):
        with suppress(OSError):
            folder.rmdir()


def with_function(template: str, new: NewFunction) -> str:
    """The template's text with the function in it, each other line as it was. Raises HarnessError."""
    if new.id in _declared(template):
        raise HarnessError(f"template.yaml already has a {new.id}: choose another name")
    text: str | None = template
    for insertion in layout_of(template).insertions:
        text = text and inserted(insertion, text, new.placeholders)
    if text is None or new.id not in _declared(text):
        raise HarnessError(
            "template.yaml has no place where the function fits: write it by hand, as docs/how-to/own-function.md says"
        )
    return text


def _check_name(root: Path, new: NewFunction, files: Mapping[Path, str]) -> None:
    if not NAME.fullmatch(new.name) or len(new.name) > MAX_NAME or keyword.iskeyword(new.name):
        raise HarnessError(
            f"NAME: {new.name!r} must be up to {MAX_NAME} characters of a-z 0-9 _, beginning with a letter: report"
        )
    folders = [root / folder / new.name for folder in ("functions", "events")]
    for path in (*folders, *files):
        if path.exists() and not _is_left_over(path):
            raise HarnessError(f"NAME: {path.relative_to(root)} already exists: choose another name")
    if new.name in functions():
        raise HarnessError(f"NAME: {new.name} is a function of duecourse: choose another name")


def _is_left_over(folder: Path) -> bool:
    """True for a folder that has compiled code alone: git leaves such a folder where it removes the sources."""
    return folder.is_dir() and {path.name for path in folder.iterdir()} <= {COMPILED}


def _check_kind(template: str, new: NewFunction) -> None:
    if not re.fullmatch(NAME_PATTERN, new.kind):
        raise HarnessError(f"KIND: {new.kind!r} must be 1 to 64 characters of A-Z a-z 0-9 . _ : @ -")
    if f'"{new.kind}": "lambda:${{' in template or new.kind in BUILT_IN:
        raise HarnessError(f"KIND: {new.kind} already has a target: choose another kind with --kind")
    try:
        read_targets({new.kind: f"lambda:{new.id}"})
    except ValueError as error:
        raise HarnessError(f"KIND: {error}") from error


def _declared(template: str) -> Mapping[str, object]:
    found: Mapping[str, object] = load_yaml(template)["Resources"]
    return found


def _event(new: NewFunction) -> Mapping[str, object]:
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
