"""Batches: things to be sent, in pieces that a transport takes."""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


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
