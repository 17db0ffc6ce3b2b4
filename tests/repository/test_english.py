"""The rules for texts find what breaks them, leave plain English alone, and every place of texts is looked at."""

from functools import cache

import pytest

from tests.english.__main__ import found
from tests.english.docstrings import docstrings
from tests.english.messages import raised
from tests.english.rules import CODING, DESCRIBING, TELLING, plain
from tests.english.texts import Text, texts

BROKEN = [
    "Above what it does not grow, at most P49D.",
    "By what that grows with each further failure.",
    "Whether it is a random part of that: else many retry as one.",
    "At which attempt a failure is its end.",
    "For the hours this one is told; else the reminder's.",
    "How long there is nothing to do but by a change; None for as long as there is none.",
    "When it is due from now on: this, or `delay`.",
    "What tells of an end is not told over while it has yet to tell.",
    "Queues and their settings are nobody's: whoever may call may set them.",
    "Those not heard come later. It has an end of its own.",
    "Adds to it are refused meanwhile.",
    "Where AWS's services answer.",
    "The task as it stands.",
    "The queue pauses, its leases are waited for, and then all of its tasks are moved, one by one and in order, "
    "until nothing is left in it, and then it opens.",
]
PLAIN = [
    "Upper bound for the delay; at most P49D.",
    "Multiplier applied to the delay after each failure.",
    "Randomise the delay (full jitter) so that clients do not retry in step.",
    "Maximum attempts; a failure on the last one makes the task dead.",
    "Current attempt: 1 plus the failures since the last `Again`.",
    "Time zone for this recipient; defaults to the reminder's.",
    "Seconds until the next scheduled work, or None to wait until notified.",
    "A pending completion notification is never overwritten.",
    "When the task ends, duecourse POSTs to this URL, retrying up to 16 times over 5 hours; then the notification is "
    "dead-lettered.",
    "Queue settings are not per tenant; any authorised caller can change them.",
    "After a 5xx or a crash, resend with the same key: generated ids are derived from it, so nothing is added twice.",
    "At most N concurrent calls per host, across all callers. Excess queries are queued and answered with 202.",
    "Reserved kinds and queues, managed by `/reminders` and `/queries`.",
]


@pytest.mark.parametrize("text", BROKEN)
def test_a_text_that_breaks_a_rule_is_found(text: str) -> None:
    assert found(Text("here", plain(text), DESCRIBING))


@pytest.mark.parametrize("text", PLAIN)
def test_plain_english_is_left_alone(text: str) -> None:
    assert found(Text("here", plain(text), DESCRIBING)) == []


def test_a_report_names_the_place_the_rule_and_the_sentence() -> None:
    [line] = found(Text("openapi Task/id", "Fine. It stands alone.", TELLING))[1:]
    assert line == "openapi Task/id: a thing is, or exists: It stands alone."


def test_code_links_and_urls_are_words() -> None:
    said = "Read `a b c` in [the page](docs/page.md#it-stands) or http://127.0.0.1:3000/it/stands."
    assert plain(said) == "Read CODE in the page or URL."


@cache
def everything() -> list[Text]:
    return list(texts())


@pytest.mark.slow
def test_texts_come_from_every_place() -> None:
    places = {text.place.split()[0].split("/")[0] for text in everything()}
    pages = {"README.md", "SECURITY.md", "docs"}
    assert {"openapi", "settings", "error", "help", "template", "layers", "local"} | pages <= places


def test_a_message_is_read_where_an_error_is_made() -> None:
    source = 'raise HarnessError(f"{name} was " + "told of it")\nprint("is told of")\nraise ValueError("x", 1)\n'
    assert list(raised(source)) == [(1, "X was told of it")]


CODE = '''"""What a module says."""

LIMIT = 1
"""Bound of it."""


class Thing:
    """Table of a thing.

    | what | stands |

    Examples:

        duecourse told
    """

    def act(self) -> None:
        """Do it, whatever a stranger may call it in the end."""
        # Why it is told.
        print("is told")
'''


def test_docstrings_are_read_without_their_tables_and_examples() -> None:
    assert dict(docstrings(CODE)) == {
        1: "What a module says.",
        4: "Bound of it.",
        8: "Table of a thing.\n\n\nExamples:\n",
        18: "Do it, whatever a stranger may call it in the end.",
    }


@pytest.mark.parametrize(
    "docstring",
    [
        "Whether the queue is paused.",
        "As the store does it.",
        "A task that is told to wait.",
        f"A sentence of {'many ' * 28}words.",
    ],
)
def test_a_docstring_that_breaks_a_rule_is_found(docstring: str) -> None:
    assert found(Text("here", plain(docstring), CODING))


@pytest.mark.parametrize(
    "docstring",
    [
        "True if the queue is paused.",
        "In-flight work of one drain.",
        f"A sentence of {'many ' * 26}words.",
        "Its kind.",
    ],
)
def test_a_plain_docstring_is_left_alone(docstring: str) -> None:
    assert found(Text("here", plain(docstring), CODING)) == []


@pytest.mark.slow
def test_docstrings_of_all_code_are_looked_at() -> None:
    folders = {text.place.split("/")[0] for text in everything() if text.rules == CODING}
    assert folders == {"layers", "local", "functions"}
