"""`template.yaml` read into typed values: it is the only description of the functions.

A nested application is a template of its own, with parameters from this one and outputs for it. The stack has what
both declare.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import cfn_flip  # type: ignore[import-untyped]
import yaml

from ..aws.account import ACCOUNT, REGION, STACK
from ..aws.sources.described import Source, mapped, source_of
from ..stack.problems import TemplateError
from .identity import Addresses, attribute, named_by, ref
from .intrinsics import ABSENT, Resolver, Value, is_call
from .model import (
    Function,
    Resource,
    Route,
    async_policy_of,
    logging_variables,
    route_of,
    routes_to,
    schedule_of,
    text_of,
)

FUNCTION = "AWS::Serverless::Function"
MAPPING = "AWS::Lambda::EventSourceMapping"
HTTP_API = "AWS::Serverless::HttpApi"
LAYER = "AWS::Serverless::LayerVersion"
NESTED = ("AWS::Serverless::Application", "AWS::CloudFormation::Stack")
OUTPUT = "Outputs."
DEFAULT_CONCURRENCY = 10
"""Maximum number of processes of a function without ReservedConcurrentExecutions, on a laptop."""
IMPLICIT = {"ServerlessHttpApi": {"Type": HTTP_API}}
"""API that SAM adds for HttpApi events that name none."""
PSEUDO = {
    "AWS::AccountId": ACCOUNT,
    "AWS::Region": REGION,
    "AWS::Partition": "aws",
    "AWS::StackName": STACK,
    "AWS::StackId": f"arn:aws:cloudformation:{REGION}:{ACCOUNT}:stack/{STACK}/local",
    "AWS::URLSuffix": "amazonaws.com",
    "AWS::NotificationARNs": [],
    "AWS::NoValue": ABSENT,
}


class Template:
    """One template, its parameters and the addresses of the emulated services."""

    def __init__(self, path: Path, addresses: Addresses, parameters: Mapping[str, str] | None = None) -> None:
        self._path = path
        self._folder = path.resolve().parent
        self._raw = _read(path)
        self._addresses = addresses
        self._parameters = dict(parameters or {})
        self._resolver = Resolver(self._raw, names=self._ref, attributes=self._attribute, secret=addresses.store)

    @property
    def functions(self) -> list[Function]:
        """Every function, those of nested applications first. Raises TemplateError where two have one name."""
        own = [self._function(logical_id) for logical_id, kind in self._present() if kind == FUNCTION]
        found = [*(function for nested in self._nested.values() for function in nested.functions), *own]
        _check_names(self._path, found)
        return found

    def resources(self, *kinds: str) -> list[Resource]:
        """Every resource of these types, those of nested applications too."""
        return [
            *self._own(*kinds),
            *(resource for nested in self._nested.values() for resource in nested.resources(*kinds)),
        ]

    def output(self, name: str) -> Value:
        """Value of an output. Raises TemplateError for one that is not there."""
        found = self._raw.get("Outputs", {}).get(name)
        if found is None or not self._is_present(found):
            raise TemplateError(f"{self._path} has no output {name}")
        return self._resolver.resolve(found["Value"])

    @cached_property
    def _nested(self) -> dict[str, "Template"]:
        """Templates of the nested applications, by logical id."""
        return {id: self._application(id) for id, kind in self._present() if kind in NESTED}

    def _application(self, id: str) -> "Template":
        properties = self._properties(id)
        location = self._resolver.resolve(properties.get("Location") or properties.get("TemplateURL"))
        if not isinstance(location, str):
            raise TemplateError(
                f"{self._path}: {id}.Location must be the path of a template; the harness reads no other"
            )
        given = self._resolver.resolve(properties.get("Parameters") or {})
        # What the harness gives is for this machine, and wins over what a deployment is given.
        return Template(self._folder / location, self._addresses, {**given, **self._parameters})

    def _own(self, *kinds: str) -> list[Resource]:
        """Resources of these types of this template alone, without nested applications."""
        return [
            Resource(logical_id, kind, self._name(logical_id), self._resolver.resolve(self._properties(logical_id)))
            for logical_id, kind in self._present()
            if kind in kinds
        ]

    def _present(self) -> Iterator[tuple[str, str]]:
        for logical_id, resource in self._raw.get("Resources", {}).items():
            if self._is_present(resource):
                yield logical_id, resource["Type"]

    def _is_present(self, part: Mapping[str, Value]) -> bool:
        return "Condition" not in part or self._resolver.holds(part["Condition"])

    def _properties(self, id: str) -> Mapping[str, Value]:
        return self._resource(id).get("Properties") or {}

    def _kind(self, id: str) -> str:
        return str(self._resource(id)["Type"])

    def _resource(self, id: str) -> Mapping[str, Value]:
        found: Mapping[str, Value] | None = self._raw["Resources"].get(id, IMPLICIT.get(id))
        if found is None:
            raise TemplateError(f"{id} is referred to and is neither a parameter nor a resource")
        return found

    def _name(self, id: str) -> str:
        given = self._properties(id).get(named_by(self._kind(id)))
        name = ABSENT if given is None else self._resolver.resolve(given)
        return id if name is ABSENT else str(name)

    def _ref(self, name: str) -> Value:
        if name in PSEUDO:
            return PSEUDO[name]
        if name in self._raw.get("Parameters", {}):
            return self._parameter(name)
        return ref(self._kind(name), self._name(name), self._addresses)

    def _attribute(self, id: str, wanted: str) -> Value:
        if self._kind(id) in NESTED and wanted.startswith(OUTPUT):
            return self._nested[id].output(wanted.removeprefix(OUTPUT))
        return attribute(self._kind(id), self._name(id), wanted, self._addresses)

    def _parameter(self, name: str) -> Value:
        declared = self._raw["Parameters"][name]
        value = self._parameters.get(name, declared.get("Default"))
        if value is None:
            raise TemplateError(f"the template's parameter {name} has no default and was given no value")
        many = declared["Type"] == "CommaDelimitedList" or declared["Type"].startswith("List<")
        return [item.strip() for item in str(value).split(",") if item.strip()] if many else value

    def _function(self, logical_id: str) -> Function:
        properties = merged(self._raw.get("Globals", {}).get("Function", {}), self._properties(logical_id))

        def read(name: str, default: Value = None) -> Value:
            value = self._resolver.resolve(properties.get(name))
            return default if value is None or value is ABSENT else value

        events = read("Events", {}).items()
        return Function(
            logical_id=logical_id,
            name=self._name(logical_id),
            code=self._code(logical_id, read("CodeUri", ".")),
            handler=read("Handler"),
            runtime=read("Runtime", "python3.11"),
            memory_mb=int(read("MemorySize", 128)),
            timeout=float(read("Timeout", 3)),
            concurrency=int(read("ReservedConcurrentExecutions", DEFAULT_CONCURRENCY)),
            reserved=read("ReservedConcurrentExecutions") is not None,
            environment=logging_variables(read("LoggingConfig", {}))
            | {name: text_of(value) for name, value in read("Environment", {}).get("Variables", {}).items()},
            layers=self._layers(read("Layers", [])),
            routes=(*(route_of(e) for _, e in events if e["Type"] == "HttpApi"), *self._defined(logical_id)),
            schedules=tuple(s for name, e in events if (s := schedule_of(logical_id + name, e))),
            async_policy=async_policy_of(read("EventInvokeConfig", {})),
            sources=(
                *(found for name, e in events if (found := source_of(logical_id + name, e))),
                *self._mapped(logical_id),
            ),
        )

    def _defined(self, function: str) -> Iterator[Route]:
        """Routes that definitions of HTTP APIs lead to the function."""
        for api in self._own(HTTP_API):
            yield from routes_to(self._name(function), api.properties.get("DefinitionBody") or {})

    def _mapped(self, function: str) -> Iterator[Source]:
        """Sources that the template declares as resources of their own."""
        name = self._name(function)
        for mapping in self._own(MAPPING):
            # Its name or its ARN, perhaps with an alias.
            meant = str(mapping.properties.get("FunctionName", "")).rpartition("function:")[2].partition(":")[0]
            if meant == name and (s := mapped(mapping.name, mapping.properties)):
                yield s

    def _code(self, logical_id: str, uri: Value) -> Path:
        if not isinstance(uri, str) or uri.startswith("s3://"):
            problem = f"is no folder of this machine, whose code alone the harness runs: {text_of(uri)}"
            raise TemplateError(f"the CodeUri of {logical_id} {problem}")
        folder = (self._folder / uri).resolve()
        if not folder.is_dir():
            raise TemplateError(f"the CodeUri of {logical_id} is no folder: {folder}")
        return folder

    def _layers(self, names: list[Value]) -> tuple[Path, ...]:
        layers = [self._folder / layer.properties["ContentUri"] for layer in self._own(LAYER) if layer.name in names]
        return tuple((p / "python" if (p / "python").is_dir() else p).resolve() for p in layers)


def _read(path: Path) -> Mapping[str, Any]:
    try:
        loaded = cfn_flip.load_yaml(path.read_text())  # JSON too, which YAML contains
    except OSError as error:
        raise TemplateError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, yaml.YAMLError) as error:
        raise TemplateError(f"{path} is neither YAML nor JSON: {error}") from None
    found: Mapping[str, Any] = loaded
    return found


def _check_names(path: Path, functions: list[Function]) -> None:
    counted = Counter(function.name for function in functions)
    twice = sorted(name for name, count in counted.items() if count > 1)
    if twice:
        raise TemplateError(f"{path} and its nested applications have two functions {twice[0]}: rename yours")


def merged(shared: Value, own: Value) -> Value:
    """A function's properties over the Globals section's, as SAM does it: mappings merged, lists joined."""
    if isinstance(shared, list) and isinstance(own, list):
        return [*shared, *own]
    if isinstance(shared, Mapping) and isinstance(own, Mapping) and not (is_call(shared) or is_call(own)):
        both = {name: merged(shared[name], own[name]) for name in shared if name in own}
        return {**shared, **own, **both}
    return own
