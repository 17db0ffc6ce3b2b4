"""Pictures of the operators' page for the docs: `python -m tests.page.pictures` writes them."""

from pathlib import Path

from playwright.sync_api import expect

from tests.support.bad_day import bad_day
from tests.support.browser import Traffic, chromium, opened, served

FOLDER = Path(__file__).parents[2] / "docs" / "pictures"
THEMES = ("light", "dark")


def main() -> None:
    """Take the overview of a bad day, in each theme."""
    with bad_day(scheduled=200, note="") as day, served(day) as address, chromium() as browser:
        for theme in THEMES:
            with opened(browser, address, theme=theme) as page:
                traffic = Traffic(page)
                page.goto("")
                expect(page.locator(".findings")).to_be_visible()
                traffic.settle()
                page.screenshot(path=FOLDER / f"page-overview-{theme}.png")


if __name__ == "__main__":
    main()
