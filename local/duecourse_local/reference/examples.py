"""Examples and parts of a JSON schema that are put together from what it says of its fields."""

from collections.abc import Iterator, Mapping
from typing import Any

Schema = Mapping[str, Any]
REF = "#/components/schemas/"
BY_TYPE: dict[str, Any] = {"string": "text", "integer": 1, "number": 1, "boolean": True, "null": None, "object": {}}


def example(schema: Schema, schemas: Mapping[str, Schema]) -> Any:
    """A value of `schema`: its own example where it has one, else made of those of its required fields and items."""
    if "$ref" in schema:
        return example(schemas[schema["$ref"].removeprefix(REF)], schemas)
    known = schema.get("examples") or schema.get("enum") or ([schema["default"]] if "default" in schema else [])
    if known:
        return known[0]
    if "anyOf" in schema:
        return example(schema["anyOf"][0], schemas)
    if schema.get("type") == "array":
        return [example(schema.get("items", {}), schemas)]
    return _plain(schema, schemas)


def _plain(schema: Schema, schemas: Mapping[str, Schema]) -> Any:
    if "properties" in schema:
        fields, required = schema["properties"], set(schema.get("required", ()))
        return {name: example(fields[name], schemas) for name in fields if name in required}
    return BY_TYPE.get(schema.get("type", "object"))


def named(node: Any) -> Iterator[str]:
    """The names of the components that a part of a document refers to."""
    if isinstance(node, Mapping):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"].removeprefix(REF)
        for value in node.values():
            yield from named(value)
    elif isinstance(node, list):
        for item in node:
            yield from named(item)


def reachable(start: Any, schemas: Mapping[str, Schema]) -> dict[str, Schema]:
    """The components that `start` refers to, and those that they refer to, in the order of their names."""
    found: set[str] = set()
    wanted = {name for name in named(start) if name in schemas}
    while wanted:
        found |= wanted
        wanted = {name for one in wanted for name in named(schemas[one]) if name in schemas} - found
    return {name: schemas[name] for name in sorted(found)}


def replaced(node: Any, parts: Mapping[str, Schema]) -> Any:
    """`node` with each part that `parts` has by name as a reference to it; titles that only repeat a name left out."""
    if isinstance(node, list):
        return [replaced(item, parts) for item in node]
    if not isinstance(node, Mapping):
        return node
    for name, part in parts.items():
        if all(node.get(word) == value for word, value in part.items()):
            rest = {word: value for word, value in node.items() if word not in part and word != "title"}
            return {"$ref": f"{REF}{name}", **rest}
    return {
        word: value if word in {"default", "examples", "enum"} else replaced(value, parts)
        for word, value in node.items()
        if word != "title" or not isinstance(value, str)
    }
