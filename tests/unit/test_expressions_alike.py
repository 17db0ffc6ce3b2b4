"""Expressions find what JMESPath's own library finds: every function and form, and random ones."""

import re
from typing import Any

import jmespath
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from jmespath.exceptions import JMESPathError

from duecourse.domain.expression import FUNCTIONS
from duecourse.domain.task import Json
from duecourse.kinds.expression_meter import DoesNotFit
from tests.unit.test_expressions import CALM, EXPRESSION, found_in

DATA: Json = {
    "foo": -1, "zero": 0, "numbers": [-1, 3, 4, 5], "array": [-1, 3, 4, 5, "a", "100"], "strings": ["a", "b", "c"],
    "decimals": [1.01, 1.2, -1.5], "str": "Str", "false": False, "true": True, "empty_list": [], "empty_hash": {},
    "objects": {"foo": "bar", "bar": "baz"}, "null_key": None,
    "people": [
        {"age": 20, "age_str": "20", "bool": True, "name": "a", "extra": "foo"},
        {"age": 40, "age_str": "40", "bool": False, "name": "b", "extra": "bar"},
        {"age": 30, "age_str": "30", "bool": True, "name": "c"},
        {"age": 50, "age_str": "50", "bool": False, "name": "d"},
        {"age": 10, "age_str": "10", "bool": True, "name": 3},
    ],
    "reservations": [
        {"instances": [{"foo": [{"bar": 1}, {"bar": 2}, {"notbar": 3}, {"bar": 4}]}, {"bar": 5}]},
        {"instances": [{"foo": "x"}]},
    ],
    "a": {"first": {"b": 1}, "second": {"b": {"c": 2}}}, "nested": [[1, 2], [3, [4]], 5, []],
    "locations": [
        {"name": "Seattle", "state": "WA"}, {"name": "New York", "state": "NY"}, {"name": "Bellevue", "state": "WA"},
    ],
}  # fmt: skip
FORMS = [
    "abs(foo)", "abs(array[1])", "abs(str)", "avg(numbers)", "avg(empty_list)", "avg(array)", "ceil(decimals[0])",
    "ceil(str)", "contains('abc','a')", "contains('abc',`2`)", "contains(strings,'a')", "contains(decimals,`1.2`)",
    "contains(decimals,`false`)", "ends_with(str,'r')", "ends_with(str,`0`)", "floor(decimals[2])",
    "join(', ',strings)", "join(', ',array)", "join('/',strings)", "join(',',decimals)", "keys(objects)",
    "keys(foo)", "length(str)", "length(objects)", "length(foo)", "length(empty_hash)", "max(numbers)",
    "max(strings)", "max(array)", "max(empty_list)", "merge(objects,{a:foo})", "merge(`{}`)", "min(decimals)",
    "min(strings)", "reverse(str)", "reverse(array)", "reverse(empty_list)", "reverse(foo)", "sort(array)",
    "sort(strings)", "sort(numbers)", "sort(empty_list)", "starts_with(str,'S')", "sum(numbers)", "sum(empty_list)",
    "sum(array)", "to_array(foo)", "to_array(array)", "to_string(foo)", "to_string(objects)", "to_string('x')",
    "to_string(nested)", "to_number('1.0')", "to_number('abc')", "to_number(true)", "to_number(`[0]`)",
    "to_number('1e3')", "type(str)", "type(zero)", "type(nothing)", "type(`1.5`)",
    "values(objects)", "values(foo)", "not_null(unknown,str)", "not_null(unknown,null_key)", "sort_by(people,&age)",
    "sort_by(people,&age_str)[].age", "sort_by(people,&to_number(age_str))", "sort_by(people,&extra)",
    "sort_by(people,&bool)", "sort_by(people,&name)", "sort_by(empty_list,&foo)", "max_by(people,&age)",
    "max_by(people,&age_str)", "max_by(people,&bool)", "max_by(people,&extra)", "min_by(people,&age)",
    "min_by(people,&to_number(age_str))", "min_by(empty_list,&x)", "map(&name,people)", "map(&foo,`[]`)",
    "map(&[],nested)", "map(&to_string(@),numbers)", "map(&extra,people)", "reservations[*].instances[*].foo[*].bar",
    "reservations[].instances[].foo[].bar", "reservations[].instances[].foo", "a.*.b", "a.*.b.c", "a.*", "*.b",
    "nested[]", "nested[][]", "nested[*][0]", "nested[0][1]", "nested[-1]", "nested[9]", "nested[::-1]",
    "nested[1:3]", "nested[:-1:2]", "people[?age>`20`].name", "people[?bool].age", "people[?!bool].age",
    "people[?age_str=='20' || age==`50`].age", "people[?age>`20` && bool]", "people[?name=='a'].[name,age]",
    "people[*].{n:name,a:age}", "people[].[name,extra]", "locations[?state=='WA'].name",
    "locations[?state=='WA'].name | sort(@) | {W: join(', ', @)}", "!foo", "!zero", "!empty_list", "!true",
    "!nothing", "foo || str", "empty_list || str", "false || zero", "true && str", "false && str",
    "empty_hash && str", "foo.bar", '"foo"', "@", "@.foo", "[@.foo]", '`"x"`', "'raw'", '`{"a":[1]}`.a', "foo==`-1`",
    "str=='Str'", "true==`true`", "zero==`false`", "nested==nested", "objects=={foo:'bar',bar:'baz'}",
    "objects!=`{}`", "str<'Z'", "foo<=`-1`", "numbers[?@>`3`]", "numbers[?@!=`3`]", "strings[?@>='b']",
    "people[0].*", "[]", "*", "[*]", "nested[*]", "nested[*][]", "a.first.b", "a.{x:first.b,y:second.b.c}",
    "people[:2].name", "people[-2:].name", "people[?extra]", "length(people[?!extra])", "people[*].extra", "[0]",
    "keys(@)", "to_array(@)", "type(@)", "people[?contains(age_str,'0')].age",
    "people[?starts_with(to_string(name),'a')]",
]  # fmt: skip
"""Those of the specification's own examples, and the like."""
WRONG = (JMESPathError, TypeError, ValueError, AttributeError, ArithmeticError)
"""Errors by which the library says that an expression does not fit its data."""


def library(expression: str, data: Json) -> Any:
    """Result of the library, None where the expression does not fit."""
    try:
        return "found", jmespath.search(expression, data)
    except WRONG:
        return "does not fit", None


def ours(expression: str, data: Json) -> Any:
    try:
        return "found", found_in(data, expression)
    except DoesNotFit:
        return "does not fit", None


@pytest.mark.parametrize("expression", FORMS)
def test_a_form_finds_what_the_library_finds(expression: str) -> None:
    found, wanted = ours(expression, DATA), library(expression, DATA)
    assert found == wanted
    assert str(found) == str(wanted), "1 and 1.0 and true are equal to Python"


def test_every_function_is_among_the_forms() -> None:
    assert {name for name in FUNCTIONS if not any(f"{name}(" in form for form in FORMS)} == set()


LEAF = st.none() | st.integers(2, 5) | st.text("abc", max_size=3) | st.floats(2, 9)
PLAIN = st.recursive(
    LEAF, lambda c: st.lists(c, max_size=4) | st.dictionaries(st.sampled_from("abc"), c, max_size=3), max_leaves=14
)
"""Values without booleans, 0 and 1, which the library takes for each other within lists."""
COMPARES = {"==", "!="}
NUMBERS = re.compile(r"`\[?1|length|sum|avg")
"""Parts of an expression that may make a 1."""


@given(EXPRESSION, PLAIN)
@settings(CALM, max_examples=200)
def test_a_random_expression_finds_what_the_library_finds(expression: str, data: Json) -> None:
    assume(not (COMPARES & set(expression.split()) or "contains" in expression) or not NUMBERS.search(expression))
    sort, wanted = library(expression, data)
    assume(sort == "found")
    assert ours(expression, data) == ("found", wanted)
