"""The figures of the core's structure, on small sources and runs."""

import runpy
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from tests.house import __main__ as house
from tests.house import counts
from tests.house.counts import Field, Import, Run
from tests.house.runs import observed, runs
from tests.support.source import sources

SOURCE = '''\
"""What it is."""

import json
from os import (
    path,
)

# why
SIZE = 7  # blocks
"""Its unit."""


def sized(text: str) -> str:
    """What it does."""
    return f"""{text}

    of   {SIZE} # blocks"""
'''


def test_code_lines_leave_out_blanks_docstrings_comments_and_imports() -> None:
    lines = [(line.number, line.text) for line in counts.code_lines(SOURCE)]
    assert lines == [
        (9, "SIZE = 7"),
        (13, "def sized(text: str) -> str:"),
        (15, 'return f"""{text}'),
        (17, 'of {SIZE} # blocks"""'),
    ]


def test_repeats_are_places_of_six_lines_that_stand_twice() -> None:
    twice = "\n".join(f"a{number} = 1" for number in range(6))
    assert repeated(one=twice, other=twice.replace(" = ", "  =  ") + "  # again") == [("one", 1), ("other", 1)]
    assert repeated(one=twice, other=twice.replace("a5", "b5")) == []


def test_long_repeats_are_one_place_in_each_copy() -> None:
    twice = "\n".join(f"a{number} = 1" for number in range(9))
    assert repeated(one=f"first = 1\n{twice}\nbetween = 1\n{twice}") == [("one", 2), ("one", 12)]


def test_lines_that_are_alike_do_not_repeat_within_six() -> None:
    assert repeated(one="a = 1\n" * 11) == []
    assert repeated(one="a = 1\n" * 12) == [("one", 1), ("one", 7)]


def repeated(**texts: str) -> list[tuple[str, int]]:
    return counts.repeats({name: counts.code_lines(text) for name, text in texts.items()})


@pytest.mark.parametrize(
    "text",
    [
        "class A:\n    until: int",
        "class A:\n    until = field(0)",
        "def f(*, until: int): ...",
        "def f(until: int = 0): ...",
        "async def f(until: Annotated[int, 'end']): ...",
        "ROWS = {'until': (int, 0)}",
        "ROWS = [Row('until', int)]",
    ],
)
def test_a_name_with_its_type_default_or_text_is_a_declaration(text: str) -> None:
    assert declared(text) == ["until"]


@pytest.mark.parametrize(
    "text",
    [
        "def f(until: int): ...",
        "def f(*, until): ...",
        "def f():\n    until: int = 0\n    return {'until': (until,)}, g('until', until)",
        "ROWS = {'until': 1}",
        "EXAMPLE = {'until': ['P1D', 'PT5M']}",
        "NAMES = ('until', 'since')",
        "ROW = row('until')",
        "until = 1",
    ],
)
def test_a_use_of_a_name_is_no_declaration(text: str) -> None:
    assert declared(text) == []


def test_a_module_that_is_written_from_the_declarations_declares_nothing() -> None:
    assert counts.declarations("duecourse.client.typed_dicts", "class A:\n    until: int") == []


def declared(text: str) -> list[str]:
    return [one.name for one in counts.declarations("m", text) if one.name == "until"]


def test_a_field_of_many_meanings_is_told_by_its_owner() -> None:
    text = "class Query:\n    def ask(self, *, until: str): ...\nclass Schedule:\n    until: int"
    found = counts.declarations("m", text)
    assert [one.owner for one in found if Field(("until",), "query").is_declared_by(one)] == ["m.Query.ask"]
    assert len([one for one in found if Field(("until",)).is_declared_by(one)]) == 2
    assert not any(Field(("til",)).is_declared_by(one) for one in found)


def test_imports_are_those_that_run_and_lazy_ones_are_marked() -> None:
    text = """\
        import a.b
        from c import d, e
        from . import f
        from ..g import h
        if TYPE_CHECKING:
            from i import j
        else:
            import k
        def late():
            import l
    """
    assert counts.imports("top.mid.low", dedent(text)) == [
        Import("a.b", 1, False),
        Import("c.d", 2, False),
        Import("c.e", 2, False),
        Import("top.mid.f", 3, False),
        Import("top.g.h", 4, False),
        Import("k", 8, False),
        Import("l", 10, True),
    ]
    assert counts.imports("top.mid", "from . import f", is_package=True) == [Import("top.mid.f", 1, False)]


def test_circles_are_groups_that_reach_each_other() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": {"e"}, "e": {"d"}, "f": {"f"}}
    assert counts.circles(graph) == [["b", "c"], ["d", "e"]]
    assert counts.circles({"a": {"b", "c"}, "b": {"c"}, "c": ()}) == []


def test_floors_are_the_longest_way_down_and_a_circle_is_one() -> None:
    assert counts.floors({"a": {"b", "c"}, "b": {"c"}, "c": ()}) == 3
    assert counts.floors({"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": ()}) == 3
    assert counts.floors({"a": (), "b": ()}) == 1


def test_changes_of_file_are_counted_between_calls() -> None:
    assert counts.run_of(["a", "a", "b", "a", "c", "c", "b"]) == Run(calls=7, files=3, changes=5, returns=2)
    assert counts.run_of([]) == Run(0, 0, 0, 0)


def test_only_calls_of_functions_of_the_core_are_observed(tmp_path: Path) -> None:
    kit = written(tmp_path / "core/kit/inner.py", "def act(): pass")
    act = written(
        tmp_path / "core/outer.py", "def act(): [sum(x for x in [1]) for _ in [kit()]]; (lambda: 0)()", kit=kit
    )
    other = written(tmp_path / "other/outer.py", "def act(): core()", core=act)
    seen: list[str] = []
    with observed(seen, core=f"{tmp_path}/core/", apart=f"{tmp_path}/core/kit/"):
        other()
    act()
    assert seen == [f"{tmp_path}/core/outer.py"] * 2


def written(file: Path, text: str, **names: Any) -> Any:
    """The function `act` of a module with this text."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return runpy.run_path(str(file), names)["act"]


def test_runs_are_warm_and_of_one_path_each() -> None:
    found = runs()
    assert all(run.changes - run.returns == run.files > 1 for run in found)
    assert found.task.calls < 1_000, "the first run was observed: it builds models"


@pytest.mark.slow
def test_the_core_of_today_has_rooms_with_arrows_between_them() -> None:
    core = sources("layers/core/duecourse")
    found = house.arrows(core)
    assert found
    assert all(name not in others for name, others in found.items())
    assert all(set(others) <= set(found) for others in found.values())


def test_table_has_each_figure_with_its_goal_and_places_if_wanted() -> None:
    rows = [house.Figure("modules", 1_200, 160, ["a.py:1"]), house.Figure("lines", 7, None)]
    assert list(house.table(rows, verbose=False)) == [
        "figure       now     goal",
        "modules    1,200      160",
        "lines          7     less",
    ]
    assert "    a.py:1" in house.table(rows, verbose=True)
