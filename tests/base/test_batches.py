"""Pieces that a transport takes: bounded in number and in bytes."""

from duecourse.base.batches import cut


def pieces(things: list[str], *, most: int = 3, max_bytes: int = 10) -> list[list[str]]:
    return list(cut(things, len, most=most, max_bytes=max_bytes))


def test_nothing_is_no_piece() -> None:
    assert pieces([]) == []


def test_a_piece_holds_so_many_and_no_more() -> None:
    assert pieces(["a", "b", "c", "d"]) == [["a", "b", "c"], ["d"]]


def test_a_piece_that_is_just_full_is_whole_and_one_byte_more_begins_the_next() -> None:
    assert pieces(["aaaaa", "bbbbb", "c"]) == [["aaaaa", "bbbbb"], ["c"]]


def test_what_is_larger_by_itself_goes_alone() -> None:
    assert pieces(["a", "b" * 11, "c"]) == [["a"], ["b" * 11], ["c"]]
