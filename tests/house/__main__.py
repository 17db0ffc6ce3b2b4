"""`python -m tests.house`: the core's structure in figures, with the goals beside them."""

import argparse
import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from tests.house import counts
from tests.house.counts import Field
from tests.house.runs import Runs, runs
from tests.support.source import Source, sources

EPILOG = """\
examples:
  python -m tests.house                       the table
  python -m tests.house --verbose             with the places behind each figure
  python -m tests.house --json >before.json   for machines: {figure: {value, goal, places}}

The docstrings of tests/house say how each figure is counted.
"""
FIELDS = {
    "overlap": Field(("overlap",)),
    "max_wait": Field(("max_wait", "max_wait_ms")),
    "max_attempts": Field(("max_attempts",)),
    "tenant_max_running": Field(("tenant_max_running",)),
    "lead of a reminder": Field(("lead", "lead_ms", "leads_ms", "remind_before")),
    "until of a query": Field(("until",), owner="quer|poll"),
}
"""Fields whose declarations are counted, in the core and in `local/`."""
DECLARED = 2
"""Goal: the field's own declaration, and the client's typed parameter, which mypy must see."""


class Figure(NamedTuple):
    """One row: its value, its goal (None: less than now), and the places that it was counted from."""

    name: str
    value: int
    goal: int | None
    places: Sequence[str] = ()


class Edge(NamedTuple):
    """Imports from one room to another: their number, and the number of lazy ones among them."""

    imports: int
    lazy: int


Rooms = Mapping[str, Mapping[str, Edge]]
"""Each room, and the rooms that it imports."""


def figures() -> Iterator[Figure]:
    """Every figure, in the order of the table."""
    core, local = sources("layers/core/duecourse"), sources("local")
    lines = {source.name: counts.code_lines(source.text) for source in core}
    yield Figure("code lines of the core", sum(map(len, lines.values())), None)
    yield Figure("modules of the core", len(core), 160)
    yield Figure("modules of local", len(local), 110)
    yield from of_rooms(core)
    yield from of_declarations([*core, *local])
    yield from of_runs(runs())
    yield Figure("six lines twice", len(found := counts.repeats(lines)), 0, [f"{file}:{line}" for file, line in found])


def of_rooms(core: Sequence[Source]) -> Iterator[Figure]:
    """Count first-level packages as rooms; single modules beside them have arrows too, the package's front has none."""
    rooms = {_first(source) for source in core if source.module.count(".") > 1 or source.path.name == "__init__.py"}
    rooms -= {""}
    every = arrows(core)
    between = {room: {to: edge for to, edge in every[room].items() if to in rooms} for room in sorted(rooms)}
    shown = [f"{room} -> {to}: {_imports(edge)}" for room, to, edge in _edges(every)]
    yield Figure("rooms", len(rooms), 14, sorted(rooms))
    yield Figure("single modules beside them", len(every) - len(rooms), None, sorted(set(every) - rooms))
    yield Figure("arrows between rooms", len(list(_edges(between))), None)
    yield Figure("arrows with single modules", len(shown), None, shown)
    for name, graph, most in (("between rooms", between, 9), ("with single modules", every, None)):
        found = [" <-> ".join(circle) for circle in counts.circles(graph)]
        yield Figure(f"circles {name}", len(found), 0, found)
        yield Figure(f"floors {name}", counts.floors(graph), most)


def arrows(core: Sequence[Source]) -> Rooms:
    """Count imported names between rooms and single modules, at run time."""
    names = {_first(source) for source in core} - {""}
    found: dict[str, Counter[tuple[str, bool]]] = {name: Counter() for name in sorted(names)}
    for source in core:
        is_package = source.path.name == "__init__.py"
        for one in counts.imports(source.module, source.text, is_package=is_package):
            top, *rest = one.name.split(".")
            if top == "duecourse" and rest and rest[0] in names - {_first(source)} and _first(source):
                found[_first(source)][rest[0], one.is_lazy] += 1
    return {name: _by_room(counted) for name, counted in found.items()}


def _by_room(counted: Counter[tuple[str, bool]]) -> dict[str, Edge]:
    rooms = sorted({room for room, _ in counted})
    return {room: Edge(counted[room, False] + counted[room, True], counted[room, True]) for room in rooms}


def _first(source: Source) -> str:
    """The room or single module of a source, "" for the package's front."""
    return f"{source.module}.".split(".")[1]


def _edges(rooms: Rooms) -> Iterator[tuple[str, str, Edge]]:
    return ((room, to, edge) for room, others in rooms.items() for to, edge in others.items())


def _imports(edge: Edge) -> str:
    return f"{edge.imports}, {edge.lazy or 'none'} lazy"


def of_declarations(code: Sequence[Source]) -> Iterator[Figure]:
    """Count a field's declarations, by any of its names, in Python alone."""
    places = defaultdict(list)
    for source in code:
        for one in counts.declarations(source.module, source.text):
            for name, field in FIELDS.items():
                if field.is_declared_by(one):
                    places[name].append(f"{source.name}:{one.line} {one.name}")
    for name in FIELDS:
        yield Figure(f"declarations: {name}", len(places[name]), DECLARED, places[name])


def of_runs(seen: Runs) -> Iterator[Figure]:
    """Count warm runs: calls of the core's functions in this thread, not the returns from them."""
    yield Figure("POST /tasks: calls", seen.task.calls, None)
    yield Figure("POST /tasks: files", seen.task.files, None)
    yield Figure("POST /tasks: changes of file", seen.task.changes, None)
    yield Figure("POST /tasks: changes back", seen.task.returns, None)
    yield Figure("schedule added and fired: files", seen.schedule.files, None)
    yield Figure("reminder added and moved: files", seen.reminder.files, None)


def table(rows: Sequence[Figure], *, verbose: bool) -> Iterator[str]:
    """The lines of the table; with `verbose`, each place on a line of its own."""
    width = max(len(row.name) for row in rows)
    yield f"{'figure':{width}}  {'now':>7}  {'goal':>7}"
    for row in rows:
        goal = "less" if row.goal is None else f"{row.goal:,}"
        yield f"{row.name:{width}}  {row.value:>7,}  {goal:>7}"
        if verbose:
            yield from (f"    {place}" for place in row.places)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table, or the same as JSON."""
    parser = argparse.ArgumentParser(
        "python -m tests.house",
        description="The core's structure in figures, from the code itself, with the goals beside them.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    shape = parser.add_mutually_exclusive_group()
    shape.add_argument("--verbose", action="store_true", help="print the places behind each figure too")
    shape.add_argument("--json", action="store_true", help="print JSON, with all places")
    options = parser.parse_args(arguments)
    rows = list(figures())
    if options.json:
        print(json.dumps({row.name: {"value": row.value, "goal": row.goal, "places": row.places} for row in rows}))
    else:
        print("\n".join(table(rows, verbose=options.verbose)))


if __name__ == "__main__":
    main()
