"""Parts of many things: pieces that a transport takes, and groups with a common key."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)


def cut(things: Iterable[T], size_of: Callable[[T], int], *, most: int, max_bytes: int) -> Iterator[list[T]]:
    """Pieces, in order, of at most `most` things and `max_bytes` by `size_of`; what is larger by itself goes alone."""
    piece: list[T] = []
    size = 0
    for thing in things:
        length = size_of(thing)
        if piece and (len(piece) == most or size + length > max_bytes):
            yield piece
            piece, size = [], 0
        piece.append(thing)
        size += length
    if piece:
        yield piece


def pieces(things: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """The things in order, `size` at a time."""
    return (things[first : first + size] for first in range(0, len(things), size))


def grouped(things: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """The things by their keys; keys in order of their first thing, and each one's things in order."""
    groups: dict[K, list[T]] = {}
    for thing in things:
        groups.setdefault(key(thing), []).append(thing)
    return groups
