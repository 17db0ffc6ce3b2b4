"""The template as CloudFormation makes it of some parameters: conditions decided, references by name."""

from collections.abc import Callable, Mapping
from typing import Any

from duecourse_local.harness.intrinsics import Resolver
from duecourse_local.harness.template import PSEUDO

KEY = "arn:aws:kms:eu-central-1:123456789012:key/11111111-2222-3333-4444-555555555555"
SECRET = "arn:aws:secretsmanager:eu-central-1:123456789012:secret:redis-AbCdEf"
IMAGE = "123456789012.dkr.ecr.eu-central-1.amazonaws.com/duecourse-bridge:1"
QUEUE = "arn:aws:sqs:eu-central-1:123456789012:bills"
FUNCTION = "arn:aws:lambda:eu-central-1:123456789012:function:report"
TOPIC = "arn:aws:sns:eu-central-1:123456789012:alarms"
CHOICES: list[dict[str, str]] = [
    {"Architecture": "x86_64"},
    {"Auth": "jwt", "JwtIssuer": "https://issuer.example", "JwtAudience": "duecourse"},
    {"Precision": "tick"},
    {"Precision": "bridge", "BridgeImage": IMAGE},
    {"Secrets": "runtime"},
    {"RedisUrlSecret": SECRET},
    {"SecretsKeyArn": KEY},
    {"SealKey": "none"},
    {"SealKey": KEY},
    {"SigningSecret": "signing"},
    {"SigningSecret": SECRET},
    {"KmsKeyArn": KEY},
    {"SealKey": "none"},
    {"SealKey": KEY},
    {"AmqpUrlSecret": "broker"},
    {"AmqpUrlSecret": SECRET},
    {"SealKey": "none"},
    {"SealKey": KEY},
    {"SigningSecret": "signing"},
    {"SigningSecret": SECRET},
    {"SubnetIds": "subnet-1", "SecurityGroupIds": "sg-1"},
    {"MailFrom": "reminders@example.com"},
    {"MailIdentity": "example.com"},
    {"Sms": "sns"},
    {"Targets": '"report": "lambda:report"'},
    {"TargetArns": FUNCTION},
    {"TargetQueueArns": QUEUE},
    {"Shards": '"default": 8'},
    {"ReminderQueue": "sqs"},
    {"IntakeQueue": "sqs"},
    {"Concurrency": "0"},
    {"ApiConcurrency": "20"},
    {"AlarmTopicArn": TOPIC},
    {"Watch": '[{"pattern": "a-{n}", "kind": "report"}]'},
    {"LogRetention": "365"},
]
"""What a deployment may choose besides the defaults; of two values of one parameter, the later."""


def variants() -> list[dict[str, str]]:
    """Parameters of a few deployments in which each two choices occur together, apart, and neither of them.

    Of the numbers of two choices, some binary digit differs: the row of that digit has one of them without the other,
    and the row of all the others has it the other way round.
    """
    digits = range(len(CHOICES).bit_length())
    rows = [
        [bool(n >> digit & 1) == wanted for n in range(len(CHOICES))] for digit in digits for wanted in (True, False)
    ]
    rows += [[False] * len(CHOICES), [True] * len(CHOICES)]
    return [
        {name: value for choice, taken in zip(CHOICES, row, strict=True) if taken for name, value in choice.items()}
        for row in rows
    ]


def resolver(template: Mapping[str, Any], given: Mapping[str, str]) -> Resolver:
    """Values of a template under these parameters; a resource is named by its logical id."""
    return Resolver(template, names=_names(template, given), attributes=_attribute, secret="")


def created(template: Mapping[str, Any], given: Mapping[str, str]) -> dict[str, Any]:
    """The resources that CloudFormation makes of a template under these parameters."""
    values = resolver(template, given)
    return {
        name: {**resource, "Properties": values.resolve(resource.get("Properties", {}))}
        for name, resource in template["Resources"].items()
        if "Condition" not in resource or values.holds(resource["Condition"])
    }


def _names(template: Mapping[str, Any], given: Mapping[str, str]) -> Callable[[str], Any]:
    def named(name: str) -> Any:
        parameter = template["Parameters"].get(name)
        if not parameter:
            return PSEUDO.get(name, name)
        value = given.get(name, parameter.get("Default", ""))
        return READ_AS.get(parameter["Type"], str)(value)

    return named


def _list(value: str) -> list[str]:
    return [item for item in value.split(",") if item]


READ_AS: dict[str, Callable[[Any], Any]] = {"CommaDelimitedList": _list, "Number": int}
"""Values of parameters, by type."""


def _attribute(name: str, wanted: str) -> str:
    return f"arn:aws:made:eu-central-1:123456789012:{name}" if wanted == "Arn" else f"{name}.{wanted}"
