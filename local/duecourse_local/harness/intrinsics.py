"""CloudFormation's intrinsic functions, resolved on demand, and the names that Ref and GetAtt answer."""

import re
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple, TypeAlias

from ..errors import TemplateError
from .aws.account import ACCOUNT, arn

Value: TypeAlias = Any
"""A piece of the template: what YAML can carry."""

ABSENT = object()
"""Value of `AWS::NoValue`: the property is left out."""

DYNAMIC = re.compile(r"\{\{resolve:[^}]*\}\}")
VARIABLE = re.compile(r"\$\{(!?)([^}]+)\}")


class Resolver:
    """Resolves one template's values; `names` answers Ref, `attributes` answers GetAtt."""

    def __init__(
        self,
        template: Mapping[str, Value],
        *,
        names: Callable[[str], Value],
        attributes: Callable[[str, str], Value],
        secret: str,
    ) -> None:
        self._template = template
        self._names = names
        self._attributes = attributes
        self._secret = secret

    def resolve(self, value: Value) -> Value:
        """`value` with every intrinsic function and dynamic reference replaced. Raises TemplateError."""
        if isinstance(value, str):
            return DYNAMIC.sub(lambda _: self._secret, value)
        if isinstance(value, list):
            return [v for v in map(self.resolve, value) if v is not ABSENT]
        if isinstance(value, Mapping):
            return self._call(value) if is_call(value) else self._mapping(value)
        return value

    def holds(self, condition: Value) -> bool:
        """True if a condition, by its name or written out, holds."""
        if isinstance(condition, str):
            return self.holds(self._entry("Conditions", condition))
        return bool(self.resolve(condition))

    def _mapping(self, value: Mapping[str, Value]) -> dict[str, Value]:
        resolved = {key: self.resolve(item) for key, item in value.items()}
        return {key: item for key, item in resolved.items() if item is not ABSENT}

    def _call(self, value: Mapping[str, Value]) -> Value:
        ((name, argument),) = value.items()
        if name not in self.FUNCTIONS:
            raise TemplateError(f"{name} is not understood by the harness")
        return self.FUNCTIONS[name](self, argument)

    def _entry(self, section: str, name: str) -> Value:
        try:
            return self._template[section][name]
        except KeyError:
            raise TemplateError(f"{name} is used and not among the template's {section}") from None

    def _ref(self, name: str) -> Value:
        return self._names(name)

    def _get_att(self, argument: Value) -> Value:
        resource, attribute = argument.split(".", 1) if isinstance(argument, str) else argument
        return self._attributes(resource, self.resolve(attribute))

    def _sub(self, argument: Value) -> str:
        text, given = (argument, {}) if isinstance(argument, str) else argument

        def replaced(match: re.Match[str]) -> str:
            literal, name = match.groups()
            return "${" + name + "}" if literal else str(self._variable(name.strip(), given))

        return str(self.resolve(VARIABLE.sub(replaced, text)))

    def _variable(self, name: str, given: Mapping[str, Value]) -> Value:
        if name in given:
            return self.resolve(given[name])
        return self._get_att(name) if "." in name else self._ref(name)

    def _if(self, argument: Value) -> Value:
        condition, then, otherwise = argument
        return self.resolve(then if self.holds(condition) else otherwise)

    def _equals(self, argument: Value) -> bool:
        left, right = map(self.resolve, argument)
        return str(left) == str(right)

    def _join(self, argument: Value) -> str:
        separator, items = argument
        return str(separator).join(map(str, self.resolve(items)))

    def _split(self, argument: Value) -> list[str]:
        separator, text = argument
        return str(self.resolve(text)).split(separator)

    def _select(self, argument: Value) -> Value:
        index, items = map(self.resolve, argument)
        return items[int(index)]

    def _find_in_map(self, argument: Value) -> Value:
        name, first, second = map(self.resolve, argument[:3])
        try:
            return self.resolve(self._entry("Mappings", name)[first][second])
        except KeyError:
            raise TemplateError(f"the mapping {name} has no {first}.{second}") from None

    FUNCTIONS: ClassVar[dict[str, Callable[["Resolver", Value], Value]]] = {
        "Ref": _ref,
        "Fn::GetAtt": _get_att,
        "Fn::Sub": _sub,
        "Fn::If": _if,
        "Fn::Equals": _equals,
        "Fn::Not": lambda self, argument: not self.holds(argument[0]),
        "Fn::And": lambda self, argument: all(map(self.holds, argument)),
        "Fn::Or": lambda self, argument: any(map(self.holds, argument)),
        "Fn::Join": _join,
        "Fn::Split": _split,
        "Fn::Select": _select,
        "Fn::FindInMap": _find_in_map,
        "Condition": lambda self, argument: self.holds(argument),
    }


def is_call(value: Mapping[str, Value]) -> bool:
    """True if `value` is a call of an intrinsic function and not a plain mapping."""
    if len(value) != 1:
        return False
    (name,) = value
    return name in Resolver.FUNCTIONS or name.startswith("Fn::")


class Addresses(NamedTuple):
    """URLs of the emulated services."""

    api: str
    aws: str
    store: str


class ResourceKind(NamedTuple):
    """A resource type: the property that names it, what Ref gives, and its attributes, each made from that name."""

    named_by: str
    ref: Callable[[str, Addresses], str]
    attributes: Mapping[str, Callable[[str, Addresses], str]]


def _name(name: str, _: Addresses) -> str:
    return name


def _arn(service: str, prefix: str = "") -> Callable[[str, Addresses], str]:
    return lambda name, _: arn(service, prefix + name)


def _queue_url(name: str, addresses: Addresses) -> str:
    return f"{addresses.aws}/{ACCOUNT}/{name}"


_TABLE = ResourceKind("TableName", _name, {"Arn": _arn("dynamodb", "table/")})

KINDS: dict[str, ResourceKind] = {
    "AWS::Serverless::Function": ResourceKind("FunctionName", _name, {"Arn": _arn("lambda", "function:")}),
    "AWS::Serverless::LayerVersion": ResourceKind("LayerName", _name, {}),
    "AWS::Serverless::HttpApi": ResourceKind("Name", _name, {"ApiEndpoint": lambda _, addresses: addresses.api}),
    "AWS::DynamoDB::Table": _TABLE,
    "AWS::Serverless::SimpleTable": _TABLE,
    "AWS::SNS::Topic": ResourceKind("TopicName", _arn("sns"), {"TopicArn": _arn("sns"), "TopicName": _name}),
    "AWS::SQS::Queue": ResourceKind(
        "QueueName", _queue_url, {"Arn": _arn("sqs"), "QueueName": _name, "QueueUrl": _queue_url}
    ),
    "AWS::KMS::Key": ResourceKind("KeyId", _name, {"Arn": _arn("kms", "key/")}),
    "AWS::SES::EmailIdentity": ResourceKind("EmailIdentity", _name, {}),
}


def ref(kind: str, name: str, addresses: Addresses) -> Any:
    """Value of Ref for a resource of type `kind` called `name`."""
    return KINDS[kind].ref(name, addresses) if kind in KINDS else name


def attribute(kind: str, name: str, wanted: str, addresses: Addresses) -> str:
    """Value of GetAtt; for types that the harness does not make, a text that at least names the resource."""
    found = KINDS[kind].attributes.get(wanted) if kind in KINDS else None
    return found(name, addresses) if found else f"{name}.{wanted}"


def named_by(kind: str) -> str:
    """The property that names a resource of type `kind`, "" if none does."""
    return KINDS[kind].named_by if kind in KINDS else ""
