"""Errors on wrong commands, options and values, in plain words with near names; help that fits the terminal."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from duecourse.base.hints import alike

OTHER_WORDS = {
    "dashboard": ("page", "top"),
    "delete": ("cancel", "purge", "schedules delete"),
    "errors": ("dead",),
    "failed": ("dead",),
    "failures": ("dead",),
    "get": ("show",),
    "info": ("show", "queues"),
    "list": ("tasks", "queues", "schedules list"),
    "logs": ("up", "why"),
    "ls": ("tasks", "queues", "schedules list"),
    "ps": ("tasks", "top"),
    "remove": ("cancel", "purge", "schedules delete"),
    "requeue": ("replay",),
    "retry": ("replay",),
    "rm": ("cancel", "purge", "schedules delete"),
    "start": ("up", "worker"),
    "status": ("queues", "top"),
    "stop": ("pause",),
    "ui": ("page",),
    "version": ("--version",),
    "web": ("page",),
}
"""Commands of other programs, and those of duecourse that do the same."""
MOST_NEAR = 3
"""Maximum number of near names in an error."""
BREAK = re.compile(r"(?<=\S)\n(?=\S)")
"""A line break of the code within a paragraph of a docstring; examples are indented, and keep theirs."""
NOT_ONE_OF = re.compile(r"'(.*)' is not one of (.*)\.")
WORDING = (
    (re.compile(r"^Value error, "), ""),
    (re.compile(r"^Input should "), "must "),
)
"""Words of pydantic about a value, and their replacements."""


class Command(TyperCommand):
    """A command whose help shows no type of a flag, and has paragraphs as wide as the terminal."""

    def __init__(self, *args: Any, help: str | None = None, **given: Any) -> None:
        super().__init__(*args, help=BREAK.sub(" ", help or ""), **given)

    def get_params(self, ctx: Any) -> list[Any]:
        """See TyperCommand."""
        return _without_types(super().get_params(ctx))


class Group(TyperGroup):
    """Commands whose errors are plain sentences with near names; the help as that of Command."""

    def get_params(self, ctx: Any) -> list[Any]:
        """See TyperGroup."""
        return _without_types(super().get_params(ctx))

    def make_context(self, *args: Any, **extra: Any) -> Any:
        """See TyperGroup."""
        with _plain_errors():
            return super().make_context(*args, **extra)

    def invoke(self, ctx: Any) -> Any:
        """See TyperGroup."""
        with _plain_errors():
            return super().invoke(ctx)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """See TyperGroup."""
        try:
            return super().resolve_command(ctx, args)
        except UsageError as error:
            if self.get_command(ctx, args[0]) is None:
                near = dict.fromkeys([*self._suggestions(ctx, args[0]), *alike(args[0], self.commands)[:MOST_NEAR]])
                error.message = f"No such command '{args[0]}'.{_near([*near])}"
            raise

    def _suggestions(self, ctx: Any, name: str) -> list[str]:
        """Commands that do the same by another name, or have this name in another group."""
        others = OTHER_WORDS.get(name, ())
        if ctx.parent is not None:
            here = [one for other in others for one in other.split()[-1:] if one in self.commands]
            return here or [f"{ctx.parent.command_path} {name}"] * (name in ctx.parent.command.commands)
        groups = {one: group.commands for one, group in self.commands.items() if isinstance(group, TyperGroup)}
        return [*others, *(f"{one} {name}" for one, commands in groups.items() if name in commands)]


UsageError: Any = typer.BadParameter.__base__
"""Typer's error of wrong words; where it is defined differs from version to version."""


@contextmanager
def _plain_errors() -> Iterator[None]:
    try:
        yield
    except UsageError as error:
        error.message = plain(error.message)
        raise


def plain(message: str) -> str:
    """An error of wrong words, without the words of a library, and with the nearest of the values that are right."""
    for pattern, words in WORDING:
        message = pattern.sub(words, message)
    found = NOT_ONE_OF.fullmatch(message)
    return message + _near(alike(found[1], re.findall(r"'([^']*)'", found[2]))[:MOST_NEAR]) if found else message


def _near(names: list[str]) -> str:
    return f" Did you mean {', '.join(map(repr, names))}?" if names else ""


def _without_types(params: list[Any]) -> list[Any]:
    for one in params:
        if getattr(one, "is_flag", False):
            one.metavar = ""
    return params
