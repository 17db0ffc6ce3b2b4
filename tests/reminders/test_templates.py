"""Reminders' templates: what they can speak of, and that no template runs for ever, grows or reaches out."""

import time
import tracemalloc
import zoneinfo
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from importlib.resources import files
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duecourse.base.cpu_turns import Computation, OutOfTime, Turns
from duecourse.base.json_text import Json
from duecourse.errors import InvalidInput
from duecourse.reminders import writer
from duecourse.reminders.send import Letter, Message
from duecourse.reminders.writer import MESSAGE_S, BrokenTemplate, Renderer, TemplateWriter, text_of
from tests.support.cpu import is_soon
from tests.support.matrix import in_turn

STARTS_AT = 1_774_747_800_000
PAYLOAD = {
    "reminder": "standup",
    "subject": "Stand-up",
    "message": "",
    "html": "",
    "data": {"room": "4 <b>", "items": [{"name": "tea", "price": 3}, {"name": "cake", "price": 4.5}], "none": None},
    "recipient": {"name": "Ada", "channel": "email", "address": "ada@example.com", "time_zone": "Europe/Vienna"},
    "lead_ms": 5_400_000,
}
LONG = "x" * 10_000


def spent() -> Computation:
    """A computation whose time is over."""
    return Computation(Turns(), "-", -1)


def rendered(template: str, within_s: float) -> str:
    with Turns().computing("-", within_s) as computation:
        return Renderer().render(template, {}, computation)


def written(**changes: Json) -> Message:
    [message] = TemplateWriter().write([Letter({**PAYLOAD, **changes}, STARTS_AT)])
    return message


def said(template: str, **changes: Json) -> str:
    """What a message's template says."""
    return written(message=template, **changes).text.removesuffix("\n")


def refusal(template: str, field: str = "message", **changes: Json) -> str:
    """Why a template is refused."""
    with pytest.raises(InvalidInput) as caught:
        written(**{field: template}, **changes)
    problem, *later = caught.value.problems
    assert problem.field == field
    assert all("takes too long" in one.problem for one in later), "what comes once the time is over"
    return problem.problem


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{{ recipient.name }} {{ recipient.channel }} {{ recipient.address }}", "Ada email ada@example.com"),
        ("{{ starts_at }}", "Sunday, 29 March 2026 at 03:30 CEST"),
        ("{{ starts_at.date }}|{{ starts_at.time }}|{{ starts_at.zone }}", "Sunday, 29 March 2026|03:30|CEST"),
        ("{{ starts_at.weekday }} {{ starts_at.day }} {{ starts_at.month }} {{ starts_at.year }}",
         "Sunday 29 March 2026"),
        ("{{ starts_at.iso }} {{ starts_at.timestamp }}", "2026-03-29T03:30:00+02:00 1774747800"),
        ("{{ id }}: {{ subject }} in {{ lead }} ({{ lead_seconds }})", "standup: Stand-up in 1 hour 30 minutes (5400)"),
        ("{{ data.room }} {{ data.items[0].name }} {{ data['items'][-1].price }}", "4 <b> tea 4.5"),
        ("{% for item in data.items %}{{ loop.index }}. {{ item.name }}{% if not loop.last %}, {% endif %}{% endfor %}",
         "1. tea, 2. cake"),
        ("{{ data.items|map(attribute='name')|join(' and ')|upper }}", "TEA AND CAKE"),
        ("{{ data.items|join('+', attribute='price') }} {{ data.items|tojson }}",
         '3+4.5 [{"name": "tea", "price": 3}, {"name": "cake", "price": 4.5}]'),
        ("{{ data.none }}{{ true }}{{ data.floor|default('ground') }}{{ data.floor is defined }}", "truegroundfalse"),
        ("{{ 'in ' ~ lead ~ '!' }} {{ 7 // 2 + 1.5 * 2 }} {{ 'a' + 'b' }}", "in 1 hour 30 minutes! 6.0 ab"),
        ("{% set room = data.room|replace('<b>', 'b') %}{{ room if lead_seconds > 60 else 'now' }}", "4 b"),
        ("{% for n in range(3) %}{{ n }}{% endfor %}{% for n in (7, 8) %}{{ n }}{% endfor %}{{ 3.14159|round(2) }}",
         "012783.14"),
        ("a\n{% if true %}\nb\n{% endif %}\nc", "a\nb\nc"),
        ("{% set x = 'inf'|float %}{{ x }}", "inf"),
        ("{# not said #}{% raw %}{{ x }}{% endraw %}", "{{ x }}"),
    ],
)  # fmt: skip
def test_a_template_speaks_of_what_is_at_hand(template: str, text: str) -> None:
    assert said(template) == text


def test_hours_are_those_of_the_zones_of_schedules_whatever_the_system_has(tmp_path: Path) -> None:
    other = tmp_path / "Europe" / "Vienna"
    other.parent.mkdir()
    other.write_bytes(files("tzdata").joinpath("zoneinfo", "UTC").read_bytes())
    try:
        zoneinfo.reset_tzpath([str(tmp_path)])
        zoneinfo.ZoneInfo.clear_cache()
        assert zoneinfo.ZoneInfo("Europe/Vienna").utcoffset(datetime(2026, 3, 29)) == timedelta()
        assert said("{{ starts_at.time }} {{ starts_at.zone }}") == "03:30 CEST"
    finally:
        zoneinfo.reset_tzpath()
        zoneinfo.ZoneInfo.clear_cache()


def test_what_is_put_into_html_is_escaped_and_into_text_is_not() -> None:
    message = written(html="<p>{{ data.room }} {{ 'a<' ~ data.room }}</p>", message="{{ data.room }}")
    assert message.html == "<p>4 &lt;b&gt; a&lt;4 &lt;b&gt;</p>"
    assert message.text == "4 <b>\n"


def test_html_alone_has_its_text_made_of_it_and_text_alone_stays_alone() -> None:
    assert written(html="<h1>Hi</h1><p>Room {{ data.room }}</p>").text == "Hi\n\nRoom 4 <b>\n"
    assert written(message="Hi").html == ""


@pytest.mark.parametrize(
    ("template", "why"),
    [
        ("a\n{{ name }}",
         "line 2: name is not known; known are: data, id, lead, lead_seconds, recipient, starts_at, subject"),
        ("a\n\n{{ recipient.nam }}", "line 3: nam is not known; known here: name, channel, address"),
        ("{% if true %}\n{{ data.items[7].name }}{% endif %}", "line 2: 7 is not known of list"),
        ("{% if false %}\n{{ nope }}{% endif %}", "line 2: nope is not known"),
        ("{{ data.none.x }}", "line 1: x is not known of NoneType"),
        ("{% for x in data.none %}{% endfor %}", "line 1: a loop needs a list"),
        ("{{ data.items }}", "line 1: a list cannot be rendered as text: name a part of it"),
        ("{{ data }}", "line 1: an object cannot be rendered as text"),
        ("a\n{% if x %}", "line 2: Unexpected end of template"),
        ("{{ }", "line 1: "),
        ("{{ data.room|shout }}", "line 1: there is no filter shout; there are: abs, capitalize"),
        ("{{ data.room is loud }}", "line 1: there is no test loud"),
        ("\n{{ 1 / 0 }}", "line 2: division by zero"),
        ("{{ 1e999 }}", "line 1: the number is too large"),
        (r"{{ '\ud800' }}", "line 1: an unpaired surrogate"),
        ("{{ data.room|truncate(1) }}", "line 1: expected length >= 3, got 1"),
        ("{{ []|first }}", "line 1: No first item, sequence was empty."),
        ("{{ 'a' * 3 }}", "line 1: * works on numbers: join texts with ~"),
    ],
)  # fmt: skip
def test_a_broken_template_is_told_by_line_with_the_fix(template: str, why: str) -> None:
    assert refusal(template).startswith(why)


def test_every_broken_field_is_named_at_once() -> None:
    with pytest.raises(InvalidInput) as caught:
        written(subject="{{ a }}", message="{{ b }}", html="{{ c }}")
    assert {problem.field for problem in caught.value.problems} == {"subject", "message", "html"}


ESCAPES = [
    "{{ ''.__class__.__mro__ }}", "{{ data.__class__ }}", "{{ data['__class__'] }}", "{{ data|attr('__class__') }}",
    "{{ ''['__class__'] }}", "{{ starts_at.__str__ }}", "{{ range.__globals__ }}", "{{ self.__init__ }}", "{{ self }}",
    "{{ cycler.__init__.__globals__.os }}", "{{ lipsum.__globals__ }}", "{{ namespace() }}", "{{ config }}",
    "{% for x in data.items %}{{ loop.__class__ }}{% endfor %}",
    "{% for x in data.items %}{{ loop.cycle }}{% endfor %}",
    "{{ data.items|map(attribute='__class__')|first }}", "{{ data.items|map('attr', '__class__')|list }}",
    "{{ data.items|groupby('__class__')|first }}", "{{ 'a'.upper() }}", "{{ data.items.append(1) }}",
    "{{ data.pop('room') }}",
    "{{ '{0.__class__}'.format(1) }}", "{{ ('%s' % 1) }}", "{% include 'x' %}", "{% import 'x' as y %}",
    "{% extends 'x' %}",
    "{% macro m() %}{% endmacro %}", "{% block b %}{% endblock %}", "{% filter upper %}x{% endfilter %}",
    "{% call x() %}{% endcall %}", "{% autoescape false %}{% endautoescape %}", "{{ {}.x }}", "{% set data.x = 1 %}",
]  # fmt: skip


@pytest.mark.parametrize("template", ESCAPES)
@pytest.mark.parametrize("field", ["message", "html"])
def test_a_template_reaches_nothing_but_what_it_is_given(template: str, field: str) -> None:
    assert refusal(template, field)


HEAVY = [
    "{{ 'a' * 1000000000 }}", "{{ [1] * 1000000000 }}", "{{ 9 ** 9 ** 9 }}", "{{ 'x'|center(1000000000) }}",
    "{{ '%1000000000d' % 1 }}", "{{ '{:1000000000}'.format(1) }}", "{{ 1|tojson(1000000000) }}",
    "{{ 'x'|indent(1000000000) }}", "{{ 9|round(1000000000, 'ceil') }}", "{{ range(1000000000)|list|length }}",
    "{{ range(10 ** 30) }}", "{{ range(" + "9" * 40 + ")|list }}", "{{ range(1000)|join(data.long)|length }}",
    "{{ data.long|replace('x', data.long)|length }}", "{{ 'x'|replace('', data.long)|replace('x', data.long) }}",
    (
        "{% for a in range(1000) %}{% for b in range(1000) %}{% for c in range(1000) %}"
        "{% endfor %}{% endfor %}{% endfor %}"
    ),
    "{% for a in range(1000) %}{% for b in range(1000) if false %}{% endfor %}{% endfor %}",
    "{% for a in data.deep recursive %}{{ loop(data.deep) }}{% endfor %}",
    "{% set a = 'xxxxxxxxxx' %}" + "{% set a = a ~ a %}" * 60 + "{{ a }}",
    "{% set a = 'xxxxxxxxxx' %}" + "{% set a = a + a %}" * 60 + "{{ a }}",
    "{% set a = [1] %}" + "{% set a = [a, a] %}" * 60 + "{{ a }}", "{% set a = (1, 2) %}{% set a = (a, a) %}{{ a }}",
    "{% set n = 10 %}" + "{% set n = n * n %}" * 100 + "{{ n }}", "{{ 0x" + "f" * 9_000 + " }}",
    "{{ " + "9" * 5_000 + " }}",
    "{{ " + "(" * 4_000, "{{ " + "not " * 2_000 + "1 }}", "{{ " + "-" * 9_000 + "1 }}", "{{ " + "[" * 9_000,
    "{% if 1 %}" * 900, "{{ 1 " + "if 1 else 2 " * 800 + "}}", "{{ 'a'" + "|upper" * 1_600 + " }}",
    "{{ lead }}" * 3_500, "{% for x in range(1000) %}{{ data.long }}{% endfor %}",
    "{% for x in range(1000) %}{{ range(1000)|map('string')|map('upper')|list|length }}{% endfor %}",
    "{% for x in range(1000) %}{% if data.long|upper|lower|title == 'x' %}{% endif %}{% endfor %}",
]  # fmt: skip


@pytest.mark.parametrize("template", HEAVY, ids=range(len(HEAVY)))
@pytest.mark.parametrize("field", ["message", "html"])
def test_no_template_works_for_ever_or_fills_the_memory(template: str, field: str) -> None:
    def write() -> None:
        assert refusal(template, field, data={"long": LONG, "deep": [1]})

    assert is_soon(write, 2 * MESSAGE_S)


CHAINS = {
    "filters of a value": ("{{ id", "|e", " }}"),
    "filters of a constant": ("{{ 'x'", "|e", " }}"),
    "sums": ("{{ 1", "+1", " }}"),
    "parts": ("{{ data", ".a", " }}"),
    "slices": ("{{ id", "[1:]", " }}"),
    "conditions": ("{{ id", " and id", " }}"),
    "choices": ("{{ id", " if id else id", " }}"),
    "negations": ("{{ ", "not ", "id }}"),
    "brackets": ("{{ ", "(", "id }}"),
    "tags": ("", "{% if id %}", ""),
    "branches": ("{% if id %}", "{% elif id %}", "{% endif %}"),
    "texts": ("{{ id", "~id", " }}"),
    "comparisons": ("{{ id", " == id", " }}"),
    "items": ("{{ [", "1,", "]|length }}"),
    "comments": ("", "{#", ""),
    "begun tags": ("", "{%" + " " * 20, ""),
}
"""What may follow one another: a beginning, what is repeated, an end."""


def tried(**fields: str) -> None:
    with suppress(InvalidInput):
        written(**fields)


@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize(("field", "most"), in_turn(("message", 10_000), ("subject", 1_000), ("html", 50_000)))
def test_a_chain_of_any_length_is_written_or_refused_at_once(chain: str, field: str, most: int) -> None:
    begin, link, end = CHAINS[chain]
    for links in (30, 45, 200, 1_000, most):
        template = begin + link * links + end
        assert is_soon(partial(tried, **{field: template[:most]}), 2 * MESSAGE_S), links


def test_a_chain_that_is_too_long_is_told_with_the_way_out() -> None:
    assert said("{{ id" + "|e" * 40 + " }}") == "standup"
    told = refusal("\n{{ id" + "|e" * 200 + " }}")
    assert told == "line 2: it nests deeper than 50 levels: use {% set %} for a part of it"


def test_a_constant_is_not_worked_out_before_the_message_is() -> None:
    """Else its filters would run as it is compiled, where nothing counts their turns."""
    assert said("{% if false %}{{ 'x'|round }}{% endif %}{{ 'a'|upper|lower }}") == "a"


def test_a_template_is_not_even_read_once_the_time_is_over() -> None:
    with pytest.raises(BrokenTemplate, match="rendering takes too long"):
        rendered("{{ " * 10, within_s=0)


def test_a_list_cannot_hold_itself_again_and_again() -> None:
    doubling = "{% set a = [1] %}" + "{% set a = [a, a] %}" * 60
    for use in ("{{ a|tojson|length }}", "{{ a|string|length }}", "{% if a == [a, a] %}{% endif %}"):
        assert "a list here holds plain texts and numbers" in refusal(doubling + use)


@pytest.mark.parametrize(
    "template", ["{{ data.long|replace('x', data.long)|length }}", "{{ range(999)|join(data.long)|length }}"]
)
def test_what_is_too_large_is_refused_before_it_is_made(template: str) -> None:
    written(message="{{ data.long|length }}", data={"long": LONG})
    tracemalloc.start()
    assert "characters in one text" in refusal(template, data={"long": LONG})
    assert tracemalloc.get_traced_memory()[1] < 5_000_000
    tracemalloc.stop()


@pytest.mark.slow
def test_slices_of_a_long_text_are_bounded_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "MESSAGE_S", 5.0)  # what traces memory takes time
    doubled = "{% set s = data.long %}" + "{% set s = s ~ s %}" * 4
    slices = "".join(f"{{% set a{n} = s[1:] %}}" for n in range(300))
    tracemalloc.start()
    assert "characters in one text" in refusal(doubled + slices, "html", data={"long": "\N{ALARM CLOCK}" * 10_000})
    assert tracemalloc.get_traced_memory()[1] < 50_000_000
    tracemalloc.stop()


def test_a_message_is_bounded() -> None:
    template = "{% for x in range(COUNT) %}{{ data.long }}{% endfor %}"
    assert len(said(template.replace("COUNT", "26"), data={"long": LONG})) == 260_000
    assert "more than 262,144 characters in all" in refusal(template.replace("COUNT", "27"), data={"long": LONG})


def test_work_that_each_step_allows_ends_with_the_time_for_it() -> None:
    template = "{% for x in range(1000) %}{% for y in range(9) %}{{ x * y }}{% endfor %}{% endfor %}"
    assert rendered(template, within_s=60)
    with pytest.raises(BrokenTemplate, match=r"rendering takes too long: it takes more than 0\.005 s of the processor"):
        rendered(template, within_s=0.005)


def test_the_messages_of_a_reminder_share_their_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "WITHIN_S", 0.02)
    with pytest.raises(InvalidInput, match="rendering takes too long"):
        TemplateWriter().write([Letter(PAYLOAD, STARTS_AT)] * 10_000)


TWICE = "{% set s = data.long %}" + "{% set s = s ~ s %}" * 4
UNCOUNTED = [
    ("{{ data.ones" + "|select('in', data.last)" * 40 + "|list|length }}", "100,000 steps"),
    ("{{ data.ones" + "|reject('in', data.ones|map('string')|list)" * 40 + "|list|length }}", "100,000 steps"),
    (TWICE + "{{ s|trim(data.long ~ 'b')|length }}", "trim takes a text of at most 100 characters"),
    (TWICE + "{{ s|list|sort|length }}", "a list of more than 10,000 items"),
    (TWICE + "{{ s|map('upper')|join|length }}", "a list of more than 10,000 items"),
    (TWICE + "{{ s|unique|list|length }}", "a list of more than 10,000 items"),
    (TWICE + "{{ s|join(',') }}", "a list of more than 10,000 items"),
    ("{% for a in range(999) %}{% if data.ones == data.last %}{% endif %}{% endfor %}", "100,000 steps"),
    ("{% for a in range(1000) %}{% for b in range(9) %}" + "{{ a * b }}" * 20 + "{% endfor %}{% endfor %}",
     "100,000 steps"),
    ("{% for a in range(9999) if" + " a == a and" * 20 + " false %}{% endfor %}", "range() has at most"),
    ("{% for a in range(999) if" + " a == a and" * 20 + " false %}{% endfor %}" * 20, ""),
]  # fmt: skip
"""Work that no loop, and no new text, shows: each was minutes of one call of Python's own."""


@pytest.mark.parametrize(("template", "why"), UNCOUNTED, ids=range(len(UNCOUNTED)))
def test_work_within_filters_and_comparisons_is_counted_too(
    monkeypatch: pytest.MonkeyPatch, template: str, why: str
) -> None:
    monkeypatch.setattr(writer, "MESSAGE_S", 5.0)  # so that it is the count that ends it
    data = {"long": "a" * 9_000, "ones": [1] * 2_000, "last": [*range(2, 1_000), 1]}
    began = time.thread_time()
    assert why in refusal(template, data=data)
    assert time.thread_time() - began < 2


def test_a_page_of_tags_is_part_of_its_messages_time() -> None:
    with pytest.raises(OutOfTime):
        text_of("<a>" * 80_000, spent().look)


def test_a_depth_is_told_where_it_is_reached_and_not_where_pythons_stack_ends() -> None:
    for nested in ("(" * 60, "not " * 160, "-" * 160, "[" * 60, "1 if 1 else " * 160):
        assert refusal("\n{{ " + nested).startswith("line 2: it nests deeper than 50 levels")
    assert said("{{ " + "(" * 45 + "1" + ")" * 45 + " }}") == "1"


def test_a_subject_is_one_line_of_bounded_length() -> None:
    assert written(subject="{{ data.a }}  b", data={"a": "x\r\nBcc: y\u2028"}).subject == "x Bcc: y b"
    assert "it comes to 201 characters" in refusal("{{ data.a }}", "subject", data={"a": "x" * 201})
    assert "it comes to 0 characters" in refusal("{{ data.a }}", "subject", data={"a": " \n"})


def test_an_sms_has_no_more_than_sns_takes_and_no_less_than_a_character() -> None:
    phone = {**PAYLOAD["recipient"], "channel": "phone", "address": "+436641234567"}  # type: ignore[dict-item]
    assert said("x" * 1_600, recipient=phone) == "x" * 1_600
    assert "1601 characters: an SMS has 1 to 1,600" in refusal("x" * 1_601, recipient=phone)
    assert "0 characters" in refusal("{{ data.none }}", recipient=phone)
    assert said("x" * 1_601) == "x" * 1_601


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("<head><title>t</title><style>p{}</style></head><p>a</p><script>x<y</script><p>b", "a\n\nb"),
        ("a\n <b>b</b>\tc<br>d", "a b c\nd"),
        ("<ul><li>one</li><li>two</li></ul>", "- one\n- two"),
        ("<table><tr><td>a</td><td>b</td></tr><tr><td>c</td></tr></table>", "a b\nc"),
        ("<a href='https://x.org/?a=1&amp;b=2'>Join</a> <a href=\"https://x.org\">https://x.org</a>",
         "Join (https://x.org/?a=1&b=2) https://x.org"),
        ("<a href='javascript:x()'>go</a> <a name='x'>there</a>", "go there"),
        ("3 < 4 &lt; 5 <!-- <p> no --> &amp;&#8364;&nosuch; &#" + "9" * 5_000 + ";", None),
        ("<p", ""),
        ("<STYLE>İ</Style ><p>İstanbul İzmir</p><p><a href='https://x.org'>İyi</a></p>",
         "İstanbul İzmir\n\nİyi (https://x.org)"),
    ],
)  # fmt: skip
def test_the_text_of_a_page_is_what_it_shows(page: str, text: str | None) -> None:
    found = text_of(page)
    assert found.startswith("3 < 4 ") if text is None else found == text


@pytest.mark.parametrize(
    "piece", ["<a ", "<!--", "<", "</p", "<a href='", "<p>", "<a href=x>", "&#", "<script>", "<title x"]
)
def test_the_text_of_a_hostile_page_is_made_in_one_pass(piece: str) -> None:
    began = time.thread_time()
    text_of((piece * 262_144)[:262_144])
    assert time.thread_time() - began < 5


PIECES = [
    "{{ ", " }}", "{% ", " %}", "{#", "#}", "{%- ", "if ", "else", "elif ", "endif", "for x in ", "endfor",
    "set x = ", "set x, y = ", "data", ".items", ".room", ".long", "[0]", "[-1]", "['a']", "[1:]", "[::0]", "x", "y",
    "loop", ".index", "loop.changed", "recipient", "starts_at", "lead", "self", "range(", ")", "(", "[", "]", "{",
    "}", "1", "0", "1e999", "-", "+", "*", "/", "//", "%", "**", "~", "|", "upper", "list", "join", "(', ')",
    "map(attribute='a')", "map('int')", "sort", "groupby('a')", "unique", "tojson", "int(base=36)", "int", "float",
    "round(3, 'ceil')", "default('')", "truncate(1)", "replace('x', 'y')", "select('in', 'x')", "dictsort", "first",
    "length", "e", "safe", "string", "is defined", "is divisibleby 0", "is in ", "in ", " and ", "not ", "==", "<",
    ",", "'a'", "'", '"', "\n", "é", r"'\ud800'", "'inf'|float", "\x00", "none", "true", "raw", "endraw", "recursive",
    "macro x()", "include 'a'", "block x", "10 if 1 else ", ":", ";", "=", "_", "__class__",
]  # fmt: skip
DATA = {"room": "4", "items": [{"a": 1}, {"a": "b"}, [2]], "long": "x" * 1_000, "none": None}


@pytest.mark.slow
@given(template=st.lists(st.sampled_from(PIECES), max_size=14).map("".join), field=st.sampled_from(["message", "html"]))
@settings(deadline=None, max_examples=400)
def test_whatever_a_template_is_it_is_written_or_refused_by_field(template: str, field: str) -> None:
    wrapped = f"{{{{ {template} }}}}"
    for text in (
        template,
        wrapped,
        f"{{% if {template} %}}{{% endif %}}",
        f"{{% for x in {template} %}}{{{{ x }}}}{{% endfor %}}",
    ):
        with suppress(InvalidInput):
            written(**{field: text, "data": DATA})
