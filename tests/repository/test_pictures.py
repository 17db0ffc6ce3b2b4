"""The pictures of schedules: what the product does, small, and shown by the page."""

import re
from xml.etree import ElementTree as Xml

import pytest

from docs.pictures.draw import FOLDER, drawings
from tests.support.pages import DOCS

PAGE = DOCS / "how-to" / "schedules.md"
MOST = 8_000


@pytest.fixture(scope="module")
def made() -> dict[str, str]:
    return dict(drawings())


@pytest.mark.slow
def test_the_pictures_are_up_to_date(made: dict[str, str]) -> None:
    assert {file.name: file.read_text() for file in FOLDER.glob("schedule-*.svg")} == made, "run: make reference"


def test_they_are_small_and_their_text_is_text(made: dict[str, str]) -> None:
    for name, svg in made.items():
        assert len(svg) < MOST, name
        texts = ["".join(one.itertext()) for one in Xml.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]  # noqa: S314 - our own
        assert {"UTC", "Europe/Vienna"} <= set(texts), name
        assert "prefers-color-scheme:dark" in svg


def test_the_page_shows_each_of_them_and_says_what_it_shows(made: dict[str, str]) -> None:
    shown = dict(re.findall(r"!\[([^]]+)\]\(\.\./pictures/(\S+)\)", PAGE.read_text()))
    assert sorted(shown.values()) == sorted(made)


@pytest.mark.parametrize(
    ("name", "lanes"),
    [
        ("gap", ["auto (default)", "shift", "skip", "auto"]),
        ("fold", ["auto (default)", "first", "second", "both", "auto"]),
        ("missed", ["latest (default)", "all", "none"]),
        ("overlap", ["allow (default)", "skip", "queue", "replace"]),
    ],
)
def test_each_choice_has_its_lane(made: dict[str, str], name: str, lanes: list[str]) -> None:
    assert re.findall(r'class="name text"[^>]*>([^<]*)<', made[f"schedule-{name}.svg"]) == lanes
