"""JMESPath within bounds: whatever an expression asks of whatever answer, it is over in about a second."""

import json
from contextlib import suppress
from functools import partial
from typing import Any

import jmespath
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from jmespath.exceptions import JMESPathError
from jmespath.functions import Functions

from duecourse.base.cpu_turns import Turns
from duecourse.base.json_text import Json
from duecourse.calls.jmespath_eval import MAX_CPU_S, NotApplicable, Search, TooMuchWork, compiled
from duecourse.guard.jmespath_check import FUNCTIONS, MAX_DEPTH, MAX_LENGTH, WrongExpression
from tests.calls.test_payloads import POLL, fields
from tests.support.cpu import is_soon

ONES = [1] * (512 * 1024)
"""A megabyte of JSON."""
TEXTS = [""] * (340 * 1024)
ITEMS = [{"id": number, "text": "x" * 20, "state": "done"} for number in range(20_000)]
NESTED: Any = json.loads("[" * 500 + "1" + "]" * 500)
TWICE = {"a": ONES, "b": [*ONES[:-1], 2]}
HOSTILE: list[tuple[str, Any]] = [
    ("|".join(["[?@]"] * 10), ONES),
    ("[?@]", ONES),
    ("|".join(["[?!@]"] * 10), ONES),
    ("[?@==`1`]|[?@!=`2`]|[?@<`3`]", ONES),
    ("|".join(["[*]"] * 90), ONES),
    ("|".join(["[]"] * 90), [[ONES]]),
    ("*.*.*", {str(number): {"a": {"b": 1, "c": 2}} for number in range(120_000)}),
    ("|".join(["[::-1]"] * 49), ONES),
    ("|".join(["sort(@)"] * 90), ONES),
    ("|".join(["sort_by(@, &@)"] * 60), ONES),
    ("|".join(["map(&@, @)"] * 80), ONES),
    ("|".join(["reverse(@)"] * 80), ONES),
    ("max_by(@, &max_by(@, &@))", [[1] * 1_000] * 500),
    ("[*][*][*].[@]", [[[1] * 1_000]] * 500),
    ("[" + ",".join(["a==b"] * 199) + "]", TWICE),
    ("[?a==b]|[?a==b]", [{"a": [1] * 500, "b": [1] * 500}] * 600),
    ("[?a==b]|[?a==b]", [{"a": {str(n): n for n in range(500)}, "b": {str(n): n for n in range(500)}}] * 600),
    ("[" + ",".join(["contains(@, `2`)"] * 58) + "]", ONES),
    ("[" + ",".join(["sum(@)"] * 140) + "]", ONES),
    ("[" + ",".join(["length(to_string(@))"] * 40) + "]", ONES),
    ("[" + ",".join(["to_string(not_null(@))"] * 40) + "]", ONES[:100_000]),
    ("[" + ",".join(["length(keys(@))"] * 60) + "]", {str(number): 1 for number in range(100_000)}),
    ("[" + ",".join(["merge(@, @)"] * 80) + "]", {str(number): 1 for number in range(100_000)}),
    ("[" + ",".join(["contains(@, 'aab')"] * 50) + "]", "a" * 1_000_000),
    ("[" + ",".join(["to_number(@)"] * 60) + "]", "1" * 1_000_000),
    ("join(a, b)", {"a": "x" * 500_000, "b": TEXTS}),
    ("[*].join(a, b)", [{"a": "x" * 500, "b": [""] * 500}] * 500),
]


def found_in(answer: Json, *expressions: str, within_s: float = MAX_CPU_S) -> Json:
    """Result of the last of the searches of one answer."""
    with Turns().computing("-", within_s) as computation:
        search = Search(answer, computation)
        return [search.find(expression) for expression in expressions][-1]


def stopped(answer: Any, expression: str) -> None:
    with pytest.raises(TooMuchWork):
        found_in(answer, expression)


@pytest.mark.parametrize(("expression", "answer"), HOSTILE, ids=[text[:30] for text, _ in HOSTILE])
def test_an_expression_that_asks_for_too_much_is_stopped_soon(expression: str, answer: Any) -> None:
    assert is_soon(partial(stopped, answer, expression), 2 * MAX_CPU_S)


LONG = {"a": "x" * 500_000, "b": "x" * 500_000}
DOUBLED = "[a, b]" + "|[@, @][]" * 12
AMPLIFIED = [
    DOUBLED + "|sort(@)",
    DOUBLED + "|max(@)",
    DOUBLED + "|sort_by(@, &@)",
    DOUBLED + "|min_by(@, &@)",
    DOUBLED + "|join('', @)",
    DOUBLED + "|[@, [0]]|contains([0], [1])",
    DOUBLED + "|to_string(@)",
    DOUBLED + "|[?@ < 'y']",
    "{a: [a, a], b: [b, b]}" + "|{a: [a, a], b: [b, b]}" * 30 + "|a == b",
    "{a: [a, a], b: [b, b]}" + "|{a: [a, a], b: [b, b]}" * 30 + "|to_string(a)",
    "[@, @]" + "|[@, @]" * 60 + "|[0] == [1]",
]
"""One long text, or one part, that is within a list thousands of times, and is gone over each time."""


@pytest.mark.parametrize("expression", AMPLIFIED)
def test_a_part_that_a_list_holds_many_times_is_counted_each_time(expression: str) -> None:
    assert is_soon(partial(stopped, LONG, expression), 2 * MAX_CPU_S)


@pytest.mark.parametrize(
    "text",
    [
        "`" * 1_000,
        "'" * 999,
        '"' * 999,
        "\\" * 1_000,
        "[" * 1_000,
        "{a:" * 333,
        "a.*" * 333,
        "&" * 1_000,
        "!" * 1_000,
        "[?" * 500,
        "`[[" * 333,
        "a[" + "9" * 998,
        "`" + "9" * 998 + "`",
        "f(" * 500,
        "|" * 1_000,
        "a||" * 333,
        "\u0000" * 1_000,
        "\ud800" * 1_000,
        "`" + "[" * 499 + "]" * 499 + "`",
        "-" * 1_000,
        "@" * 1_000,
    ],
)
@pytest.mark.filterwarnings("ignore:deprecated string literal")
def test_an_expression_of_any_text_is_read_at_once(text: str) -> None:
    def read() -> None:
        with suppress(WrongExpression):
            compiled(text)

    assert is_soon(read, 0.1)


def test_the_functions_are_jmespaths_own() -> None:
    """One that a later release adds must be bounded before it is taken."""
    assert set(Functions.FUNCTION_TABLE) == FUNCTIONS


def test_a_text_of_gigabytes_is_never_made() -> None:
    with pytest.raises(TooMuchWork, match="more than 8 MiB"):
        found_in({"a": "x" * 500_000, "b": TEXTS}, "join(a, b)")


def test_the_searches_of_one_answer_share_their_steps() -> None:
    answer = [1] * 150_000
    assert found_in(answer, "length([?@])") == 150_000
    with pytest.raises(TooMuchWork):
        found_in(answer, "length([?@])", "length([?@])")


def test_the_clock_stops_what_its_steps_allow() -> None:
    with pytest.raises(TooMuchWork, match=r"0\.001 s"):
        found_in([1] * 150_000, "length([?@])", within_s=0.001)


def test_the_searches_of_one_answer_share_their_time() -> None:
    with pytest.raises(TooMuchWork, match=r"0\.005 s"):
        found_in([1] * 1_500, *["length([?@])"] * 100, within_s=0.005)


@pytest.mark.parametrize(
    ("expression", "found"),
    [
        ("length(items[].{id: id, text: text})", 20_000),
        ("items[?state=='done'].id|length(@)", 20_000),
        ("sort_by(items, &text)|sort_by(@, &id)[-1].id", 19_999),
        ("items[?id > `19998`]|[0].text", "x" * 20),
        ("join(',', items[:3].text)", ",".join(["x" * 20] * 3)),
        ("contains(items[].id, `7`)", True),
    ],
)
def test_a_large_answer_is_searched_as_ever(expression: str, found: Any) -> None:
    assert found_in({"items": ITEMS}, expression) == found


@pytest.mark.parametrize(
    "expression",
    [
        "!" * MAX_DEPTH + "a",
        "[" * MAX_DEPTH + "a" + "]" * MAX_DEPTH,
        "|".join(["a"] * (MAX_DEPTH + 2)),
        "(" * 499 + "a" + ")" * 499,
        "abs(" * 140 + "a" + ")" * 140,
        "a" * (MAX_LENGTH + 1),
        "a ||",
        "",
        "nosuch(@)",
        "length(a, b)",
        "not_null()",
        "a[::0]",
        "&a",
        "[&a]",
        "a || &b",
        "to_string(&a)",
        "not_null(a, &b)",
        "sort_by(a, b)",
        "map(a, b)",
        "max_by(&a, b)",
    ],
)
def test_an_expression_that_no_answer_can_fit_is_rejected_at_the_door_and_by_the_worker(expression: str) -> None:
    assert fields("poll", POLL | {"until": expression}) == {"payload.until"}
    with pytest.raises(WrongExpression):
        found_in({"a": 1}, expression)


def test_the_problem_of_a_deep_expression_names_the_way_out() -> None:
    with pytest.raises(WrongExpression, match="nests deeper than 100 levels: write it shorter"):
        compiled("|".join(["a"] * 102))


def test_an_expression_as_deep_as_may_be_is_applied_with_little_stack() -> None:
    for expression in ("a" + ".a" * 499, "!" * (MAX_DEPTH - 2) + "a", "|".join(["@"] * (MAX_DEPTH - 1))):
        found_in({"a": {}}, expression)
    assert found_in(NESTED, "to_string(@)|length(@)") == 1_001
    assert found_in({"a": NESTED, "b": NESTED}, "a == b") is True


@pytest.mark.parametrize("expression", ["length(a)", "ceil(b)", "contains(c, a)", "avg(d)", "to_string(@) < sum(c)"])
def test_what_does_not_fit_this_answer_may_fit_another(expression: str) -> None:
    answer = {"a": 1, "b": float("inf"), "c": "abc", "d": [10**400, 1]}
    with pytest.raises(NotApplicable) as told:
        found_in(answer, expression)
    assert len(str(told.value)) < 200


def test_the_reason_does_not_tell_what_the_answer_holds() -> None:
    with pytest.raises(NotApplicable, match=r"^length\(\) takes string, array, object, not number$"):
        found_in({"a": 123_456_789}, "length(a)")


@pytest.mark.parametrize(
    ("expression", "found"),
    [
        ("`1` == `true`", False),
        ("`[1]` == `[true]`", False),
        ("`1` == `1.0`", True),
        ('`{"a": [1, {"b": null}]}` == `{"a": [1, {"b": null}]}`', True),
        ("`[1, 2]` == `[1]`", False),
        ("`[]` == `{}`", False),
        ("'a' < 'b'", True),
        ("'a' < `1`", None),
        ("contains(`[[1], [2]]`, `[2]`)", True),
        ("contains(`[1]`, `true`)", False),
    ],
)
def test_values_are_equal_as_json_has_it(expression: str, found: Any) -> None:
    assert found_in({}, expression) is found


@pytest.mark.parametrize(
    "text",
    ["nan", "NaN", "inf", "-inf", "Infinity", "1_000", " 5 ", "5\n", "\u0661", "+5", ".5", "5.", "05", "0x5", "1e",
     "1e999", "-1e999", "", "--5", "1 0", "true"],
)  # fmt: skip
def test_a_text_that_is_no_number_in_json_is_no_number(text: str) -> None:
    assert found_in({"a": text}, "to_number(a)") is None
    assert found_in({"a": text}, "to_number(a) && 'true'") is None


@pytest.mark.parametrize(
    ("text", "number"),
    [("0", 0), ("-0", 0), ("-5", -5), ("1.50", 1.5), ("1e3", 1000.0), ("2E-1", 0.2), ("9" * 30, 10**30 - 1)],
)
def test_a_text_that_is_a_number_in_json_is_that_number(text: str, number: float) -> None:
    found = found_in({"a": text}, "to_number(a)")
    assert (found, type(found)) == (number, type(number))


@pytest.mark.parametrize(
    ("expression", "found"),
    [
        ('merge(`{"a": 1}`, `{"a": 2, "b": 3}`)', {"a": 2, "b": 3}),
        ("min(`[3, 1, 2]`)", 1),
        ('max(`["a", "c", "b"]`)', "c"),
        ("reverse('abc')", "cba"),
        ("reverse(`[1, 2]`)", [2, 1]),
        ("contains('abc', 'bc')", True),
        ("sort_by(`[]`, &a)", []),
        ("max_by(`[]`, &a)", None),
        ('min_by(`[{"a": 2}, {"a": 1}]`, &a)', {"a": 1}),
        ("`[[1, null], [2]]`[]", [1, 2]),
        ('`{"a": null, "b": 1}`.*', [1]),
    ],
)
def test_functions_and_projections_find_what_the_specification_says(expression: str, found: Any) -> None:
    assert found_in({}, expression) == found


@pytest.mark.parametrize("key", ["null", "true", "[1]"])
def test_a_key_that_is_no_number_and_no_text_does_not_fit(key: str) -> None:
    for function in BY:
        with pytest.raises(NotApplicable, match=rf"^the expression of {function}\(\) must find numbers alone or texts"):
            found_in([{"a": json.loads(key)}], f"{function}(@, &a)")
        with pytest.raises(NotApplicable):
            found_in([{"a": 1}, {"a": "x"}], f"{function}(@, &a)")


def test_each_argument_of_merge_must_be_an_object() -> None:
    """Python would take pairs, and names that are no texts."""
    with pytest.raises(NotApplicable, match=r"^merge\(\) takes object, not array$"):
        found_in([[1, 2]], "merge(`{}`, @)")


def test_a_function_makes_no_number_that_json_cannot_carry() -> None:
    answer = json.loads('{"a": [1e308, 1e308], "b": [1e999, -1e999], "c": [1, 2], "d": [1e999]}')
    for expression in ("sum(a)", "avg(a)", "sum(b)", "avg(b)", "sum(d)", f"to_number('{'9' * 500}e9')"):
        assert found_in(answer, expression) is None
    assert found_in(answer, "avg(c)") == 1.5
    with pytest.raises(NotApplicable):
        found_in(answer, "to_string(d)")


@pytest.mark.parametrize("literal", ["NaN", "Infinity", "-Infinity", "1e999", '[1, {"a": NaN}]'])
def test_a_literal_that_json_cannot_carry_is_rejected(literal: str) -> None:
    with pytest.raises(WrongExpression, match="NaN or 1e999"):
        compiled(f"a == `{literal}`")


@pytest.mark.parametrize(
    ("written", "place", "advised"),
    [
        ("status = ok", "'=' at character 8", "status == 'ok'"),
        ("status = 'ok'", "'=' at character 8", "status == 'ok'"),
        ("status === 'ok'", "'=' at character 10", "status == 'ok'"),
        ("done = true", "'=' at character 6", "done == `true`"),
        ("a = b.c", "'=' at character 3", "a == b.c"),
        ("n => 5", "'=' at character 3", "n >= `5`"),
        ("n == 5", "'5' at character 6", "n == `5`"),
        ("n > -1.5", "'-' at character 5", "n > `-1.5`"),
        ("items[?n = 5]", "'=' at character 10", "items[?n == `5`]"),
        ("a and b or c", "'a' at character 3", "a && b || c"),
        ("not done", "'d' at character 5", "!done"),
        ("a & b", "'&' at character 3", "a && b"),
        ("a <> b", "'>' at character 4", "a != b"),
        ("$.status", "'$' at character 1", "status"),
        ("job-state == 'ok'", "'-' at character 4", "\"job-state\" == 'ok'"),
        ("a = 5 and b = ok", "'=' at character 3", "a == `5` && b == 'ok'"),
        ("2026-01-01", "'2' at character 1", ""),
        ("n == 007", "'0' at character 6", ""),
        ("a)", "')' at character 2", ""),
        ("'abc", '"\'" at character 1', ""),
        ("a ==", "it ends too early", ""),
        ("a.", "it ends too early", ""),
    ],
)
def test_a_wrong_expression_is_rejected_with_its_place_and_the_right_form(
    written: str, place: str, advised: str
) -> None:
    with pytest.raises(WrongExpression) as rejected:
        compiled(written)
    problem, _, right = str(rejected.value).partition(": write ")
    assert problem in {f"must be a JMESPath expression: unexpected {place}", f"must be a JMESPath expression: {place}"}
    assert right == advised
    if right:
        compiled(right)
    assert fields("poll", POLL | {"until": written}) == {"payload.until"}


WORD = st.sampled_from(["a", "b", "c", "@", "`1`", '`[1, "x"]`', "'x'", "*", "[*]", "[]", "[0]", "[::2]", "`null`"])
LISTS = [
    "sort",
    "reverse",
    "length",
    "sum",
    "max",
    "keys",
    "values",
    "to_string",
    "type",
    "not_null",
    "to_array",
    "avg",
]
BY = ["sort_by", "max_by", "min_by"]
EXPRESSION = st.recursive(
    WORD,
    lambda part: st.one_of(
        st.builds("{}.{}".format, part, st.sampled_from(["a", "b", "[a, b]", "{a: @, b: b}", "*"])),
        st.builds("{} | {}".format, part, part),
        st.builds("{}[?{}]".format, st.sampled_from(["", "a", "@"]), part),
        st.builds("{}[*].{}".format, st.sampled_from(["", "a", "@"]), st.sampled_from(["a", "b", "[a, @]"])),
        st.builds("{}{}".format, st.sampled_from(["a", "@", "*"]), st.sampled_from(["[]", "[0]", "[::-1]", "[*]"])),
        st.builds("({} {} {})".format, part, st.sampled_from(["==", "!=", "<", ">=", "||", "&&"]), part),
        st.builds("!({})".format, part),
        st.builds("[{}, {}]".format, part, part),
        st.builds("{{x: {}, y: {}}}".format, part, part),
        st.builds("{}({})".format, st.sampled_from(LISTS), part),
        st.builds("{}({}, &{})".format, st.sampled_from(BY), part, part),
        st.builds("map(&{}, {})".format, part, part),
        st.builds("contains({}, {})".format, part, part),
        st.builds("join({}, {})".format, part, part),
    ),
    max_leaves=12,
)
LEAF = st.none() | st.booleans() | st.integers(-5, 5) | st.text("abc", max_size=3)
SMALL = st.recursive(
    LEAF, lambda c: st.lists(c, max_size=4) | st.dictionaries(st.sampled_from("abc"), c, max_size=3), max_leaves=12
)
LARGE = st.sampled_from([
    ONES, TEXTS, TWICE, ITEMS, {"a": ITEMS, "b": TEXTS}, [[1] * 700] * 700, {"a": "x" * 900_000, "b": TEXTS},
    {str(number): [number] for number in range(50_000)}, [{"a": [1] * 50, "b": "x" * 50}] * 3_000,
])  # fmt: skip
CALM = settings(deadline=None, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])


@pytest.mark.slow
@given(EXPRESSION, LARGE)
@settings(CALM, max_examples=40)
def test_no_expression_takes_much_longer_than_it_may(expression: str, answer: Any) -> None:
    def find() -> None:
        with suppress(WrongExpression, TooMuchWork, NotApplicable):
            found_in(answer, expression)

    assert is_soon(find, 2 * MAX_CPU_S)


@pytest.mark.slow
@given(EXPRESSION, SMALL)
@settings(CALM, max_examples=200)
def test_what_is_found_is_what_jmespath_finds(expression: str, answer: Any) -> None:
    try:
        wanted = jmespath.search(expression, answer)
    except (JMESPathError, TypeError, ValueError, AttributeError, ArithmeticError):
        assume(False)
    assume("contains" not in expression and "==" not in expression and "!=" not in expression)  # 1 is true in Python
    assert found_in(answer, expression) == wanted
