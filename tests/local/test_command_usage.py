"""What the command says of wrong words, and its help: plain sentences, near names, no types of flags."""

from itertools import pairwise
from pathlib import Path

import pytest

from duecourse_local.cli import schedules
from duecourse_local.cli.app import app
from tests.support.commands import in_this_process


def told(*words: str) -> str:
    """The error of a command, as one line without the frame around it."""
    done = in_this_process(*words)
    assert done.exit_code == 2
    return " ".join(done.stderr.replace("│", " ").split())


@pytest.mark.parametrize(
    ("words", "near"),
    [
        (("quues",), "'queues'"),
        (("task",), "'tasks'"),
        (("failed",), "'dead'"),
        (("retry",), "'replay'"),
        (("delete",), "'cancel', 'purge', 'schedules delete'"),
        (("list",), "'tasks', 'queues', 'schedules list'"),
        (("preview",), "'schedules preview'"),
        (("schedules", "lst"), "'list'"),
        (("schedules", "remove"), "'delete'"),
        (("schedules", "purge"), "'duecourse purge'"),
    ],
)
def test_an_unknown_command_is_answered_with_near_ones(words: tuple[str, ...], near: str) -> None:
    assert f"No such command '{words[-1]}'. Did you mean {near}" in told(*words)


def test_bytes_that_are_no_text_are_named_in_one_line(tmp_path: Path) -> None:
    assert "an argument is no UTF-8: " in told("token", "--subject", "\udcff", "--state", str(tmp_path))


def test_a_folder_without_a_name_is_no_ledger_to_repair() -> None:
    assert "/ holds no ledger of leveldb://" in told("repair", "/")


def test_a_command_that_is_near_to_none_is_only_unknown() -> None:
    assert "No such command 'xyzzy'." in told("xyzzy")
    assert "Did you mean" not in told("xyzzy")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("tasks", "--state", "failed"),
            "'--state': 'failed' is not one of 'scheduled', 'leased', 'done', 'cancelled'",
        ),
        (("tasks", "--state", "dea"), "Did you mean 'dead'?"),
        (("tasks", "--limit", "0"), "'--limit': must be greater than or equal to 1"),
        (("tasks", "--limit", "many"), "'--limit': must be a valid integer"),
        (("up", "--port", "99999"), "'--port': must be less than or equal to 65535"),
        (("schedules", "preview", "--count", "x"), "'--count': must be a valid integer"),
        (("schedules", "backfill", "a", "b", "c", "--overlap", "alow"), "Did you mean 'allow'?"),
        (("top", "--every", "soon"), "'--every': must be a duration such as 5m, PT5M or 300"),
    ],
)
def test_a_wrong_value_is_told_in_plain_words(words: tuple[str, ...], said: str) -> None:
    text = told(*words)
    assert said in text
    assert "Value error" not in text
    assert "Input should" not in text


def test_an_unknown_option_is_answered_with_near_ones() -> None:
    assert "No such option: --status" in told("tasks", "--status", "dead")
    assert "--state" in told("tasks", "--status", "dead")


COMMANDS = [
    (),
    ("schedules",),
    *((one.name or str(getattr(one.callback, "__name__", "")),) for one in app.registered_commands),
    *(("schedules", str(one.name)) for one in schedules.app.registered_commands),
]


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_help_shows_a_flag_without_a_type(words: tuple[str, ...]) -> None:
    done = in_this_process(*words, "--help")
    assert done.exit_code == 0
    assert "--help" in done.stdout
    assert "bool" not in done.stdout


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_help_breaks_a_line_only_where_it_is_full(words: tuple[str, ...]) -> None:
    lines = [
        line.rstrip() for line in in_this_process(*words, "--help", COLUMNS="80").stdout.partition("╭")[0].splitlines()
    ]
    for line, after in pairwise(lines):
        if line and after and not after.startswith("  "):
            assert len(f"{line} {after.split()[0]}") >= 79
