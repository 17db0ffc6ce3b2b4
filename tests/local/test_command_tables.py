"""Tables of the command: plain columns in a pipe; on a terminal names are folded last, and ids never."""

from io import StringIO

import pytest
from rich.console import Console

from duecourse_local.cli import console
from duecourse_local.cli.console import Table

LONG = "query:api.example.com"
ID = "9f86d081-884c-4d65-9a2f-eaa0c55ad015"


def printed(table: Table, width: int, *, terminal: bool) -> list[str]:
    file = StringIO()
    out = Console(file=file, width=width, force_terminal=terminal, color_system=None, highlight=False)
    console.print_table(table, out)
    return file.getvalue().splitlines()


def tasks(id: str = ID) -> Table:
    made = Table("!id", "state", "kind", "due", ">run", "error")
    made.add_row(id, "dead", "report", "12 min ago", "10", "KeyError: 'prize' at jobs/bill.py:120")
    made.add_row("b", "done", "bill", "in 5 min", "1", "")
    return made


def test_a_pipe_gets_plain_columns_that_awk_can_split() -> None:
    assert printed(tasks(), 20, terminal=False) == [
        f"id{' ' * 34}  state  kind    due         run  error",
        f"{ID}  dead   report  12 min ago   10  KeyError: 'prize' at jobs/bill.py:120",
        f"b{' ' * 35}  done   bill    in 5 min      1  -",
    ]


def test_a_terminal_folds_other_columns_before_names_and_ids() -> None:
    lines = printed(tasks(), 80, terminal=True)
    assert max(map(len, lines)) <= 80
    assert lines[1].startswith(f"{ID}  dead   report  ")
    queues = Table("queue", ">scheduled", ">running", ">done", ">dead", "overdue", "late p99", "schedules")
    queues.add_row(LONG, "1", "0", "0", "50", "12 min", "103 ms", "2, in 5 min")
    lines = printed(queues, 80, terminal=True)
    assert max(map(len, lines)) <= 80
    assert any(line.startswith(f"{LONG} ") for line in lines)


@pytest.mark.parametrize("width", [30, 40, 60])
def test_an_id_is_whole_on_a_terminal_of_any_width(width: int) -> None:
    assert any(line.startswith(ID) for line in printed(tasks(), width, terminal=True))


def test_a_terminal_shows_no_empty_column_and_a_pipe_all() -> None:
    table = Table("queue", ">dead", "overdue", "schedules")
    table.add_row("default", "1", "", "2, in 5 min")
    assert printed(table, 80, terminal=True)[0].split() == ["queue", "dead", "schedules"]
    table = Table("queue", ">dead", "overdue", "schedules")
    table.add_row("default", "1", "", "")
    assert printed(table, 80, terminal=False) == ["queue    dead  overdue  schedules", "default     1  -        -"]


def test_a_name_that_leaves_no_room_is_folded_at_last() -> None:
    table = Table("queue", ">dead", "error")
    table.add_row("q" * 60, "1", "no")
    lines = printed(table, 40, terminal=True)
    assert max(map(len, lines)) <= 40
    assert "".join(line.split()[0] for line in lines[1:]) == "q" * 60


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("plain ünï 東京 €", "plain ünï 東京 €"),
        ("\x1b[31mred\x1b[0m", r"\x1b[31mred\x1b[0m"),
        ("a\x00b\x07\x7f", r"a\x00b\x07\x7f"),
        ("one\ntwo\r\tthree", r"one\ntwo\r\tthree"),
        ("\x9b31m", r"\x9b31m"),
        ("\u202eabc\u2066", r"\u202eabc\u2066"),
        ("\u2028\ufeff\ud800", r"\u2028\ufeff\ud800"),
        ("\U000e0001", r"\U000e0001"),
    ],
)
def test_what_cannot_be_printed_is_shown_by_its_number(text: str, seen: str) -> None:
    assert console.visible(text) == seen


def test_markup_of_others_is_text() -> None:
    file = StringIO()
    Console(file=file, width=80).print(console.shown("[bold]a[/bold] \\[b] [link=x]"))
    assert file.getvalue() == "[bold]a[/bold] \\[b] [link=x]\n"


def test_json_is_the_same_document_without_what_cannot_be_printed() -> None:
    import json

    document = {"a": "ü\x1b\x9b\u202e\U000e0001\x7f", "b": ["€", None]}
    text = console.json_text(document)
    assert json.loads(text) == document
    assert text.isprintable()
    assert "ü" in text
