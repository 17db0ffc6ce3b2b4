"""The two shapes of a project: a clone, whose template is the product's own, and a folder that `init` wrote."""

import re
from collections.abc import Mapping
from typing import NamedTuple

from ...project.place import is_nested
from ...project.product import BEGIN, END

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


class Place(NamedTuple):
    """Text for a template, and the place where it belongs: a pattern of a position."""

    at: str
    text: str


class Shape(NamedTuple):
    """The files of a function besides its event, by path, and its places in the template."""

    files: Mapping[str, str]
    places: tuple[Place, ...]


def _own(text: str) -> str:
    """The text between the comments that mark it as the user's own (project/product.py)."""
    indent = " " * (len(text) - len(text.lstrip()))
    return f"{indent}{BEGIN}{text}{indent}{END}"


CLONE = Shape(
    files={"functions/{name}/app.py": APP},
    places=(
        Place(r'(?=            - !If \[HasTargets, !Sub ", \$\{Targets\}", ""\]\n)', _own(CLONE_TARGET)),
        Place(r"(?<=\n)(?=  WorkPolicy:\n)", _own(CLONE_RESOURCE) + "\n"),
        Place(r"(?=          - !If\n            - HasTargetArns\n)", _own(CLONE_STATEMENT)),
    ),
)
INIT = Shape(
    files={
        "functions/{name}/app.py": APP,
        "functions/{name}/requirements.txt": REQUIREMENTS,
        "tests/test_{name}.py": TEST,
    },
    places=(
        Place(r'(?<=\n        Targets: !Join\n          - ", "\n          -\n)', INIT_TARGET),
        Place(r'(?<=\n        TargetArns: !Join\n          - ","\n          -\n)', INIT_ARN),
        Place(r"(?<=\nResources:\n)", INIT_RESOURCE),
    ),
)


def shape_of(template: str) -> Shape:
    """The shape of the project with this template."""
    return INIT if is_nested(template) else CLONE


def filled(place: Place, template: str, words: Mapping[str, str]) -> str | None:
    """The template with the text in its place; None where it has no such place."""
    text = place.text.format(**words)
    found, count = re.subn(place.at, lambda _: text, template)
    return found if count else None
