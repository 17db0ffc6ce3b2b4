"""The project's template as tests look at it: resources, statements of policies, variables."""

import json
from collections.abc import Iterator
from functools import cache
from typing import Any

import cfn_flip  # type: ignore[import-untyped]

from tests.support.project import PRODUCT

TEMPLATE = PRODUCT / "template.yaml"
FUNCTIONS = (
    "EnqueueHttpFunction",
    "PollTickFunction",
    "OnExpiredFunction",
    "SendReminderFunction",
    "EnqueueMessageFunction",
    "OnUndeliveredFunction",
)
"""Functions of the bundle."""


@cache
def template() -> dict[str, Any]:
    read: dict[str, Any] = json.loads(cfn_flip.to_json(TEMPLATE.read_text()))
    return read


def properties(name: str) -> dict[str, Any]:
    found: dict[str, Any] = template()["Resources"][name]["Properties"]
    return found


def statements(node: Any) -> Iterator[dict[str, Any]]:
    """Every statement under a node, those behind a condition and in a policy referred to included."""
    if isinstance(node, list):
        for item in node:
            yield from statements(item)
    elif isinstance(node, dict) and "Effect" in node:
        yield node
    elif isinstance(node, dict) and set(node) == {"Ref"}:
        referred = template()["Resources"].get(node["Ref"], {})
        if referred.get("Type") == "AWS::IAM::ManagedPolicy":
            yield from statements(referred["Properties"]["PolicyDocument"])
    elif isinstance(node, dict):
        for item in node.values():
            yield from statements(item)


def actions(statement: dict[str, Any]) -> list[str]:
    action = statement["Action"]
    return action if isinstance(action, list) else [action]


def resource_of(statement: dict[str, Any]) -> str:
    """The resource of a statement, in short."""
    if "NotResource" in statement:
        return "all but " + str(statement["NotResource"]["Fn::Sub"]).removeprefix("arn:${AWS::Partition}:")
    ((how, what),) = statement["Resource"].items()
    if how == "Fn::If":
        if "Fn::GetAtt" in what[1]:
            return f"{'.'.join(what[1]['Fn::GetAtt'])} or {what[2]['Ref']}"
        return f"{what[1]['Ref']} or its ARN"
    if how == "Fn::Sub":
        return str(what if isinstance(what, str) else what[0]).rsplit(":", 1)[1]
    return ".".join(what) if isinstance(what, list) else str(what)


def environment(name: str) -> dict[str, Any]:
    shared = template()["Globals"]["Function"]["Environment"]["Variables"]
    return {**shared, **properties(name).get("Environment", {}).get("Variables", {})}
