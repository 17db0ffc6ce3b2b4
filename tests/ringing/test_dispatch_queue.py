"""What waits to be handed over, on a clock moved by hand: turns, folding, bounds, and pauses after rejections."""

from math import inf
from random import Random

import pytest

from duecourse.ringing.dispatch import KeyedQueue, Rules

NOW = 1_000.0
LONGEST_S = 5.0
"""No pause is longer."""


def keyed_queue(
    *, threads: int = 4, batch: int = 100, calls: int = 2, seed: int = 1, **rules: float
) -> KeyedQueue[str]:
    """Items whose key is their first letter."""
    made: KeyedQueue[str] = KeyedQueue(Rules(threads, batch, calls, **rules), key=lambda item: item[0])  # type: ignore[arg-type]
    made._random = Random(seed)  # else one pause in two hundred is 0
    return made


def test_items_go_in_the_order_in_which_they_came_key_by_key() -> None:
    some = keyed_queue()
    assert some.add(["a1", "b1", "a2"], NOW) == 0
    assert some.take(NOW) == {"a": ["a1", "a2"], "b": ["b1"]}
    assert some.take(NOW) == {}


def test_a_batch_is_bounded_and_the_rest_is_the_next() -> None:
    some = keyed_queue(batch=3)
    some.add(["a1", "a2", "b1", "b2", "c1"], NOW)
    assert some.take(NOW) == {"a": ["a1", "a2"], "b": ["b1"]}
    assert some.take(NOW) == {"b": ["b2"], "c": ["c1"]}


def test_of_one_key_so_many_calls_are_under_way_and_no_more() -> None:
    some = keyed_queue(batch=1, calls=2)
    some.add(["a1", "a2", "a3"], NOW)
    first, second = some.take(NOW), some.take(NOW)
    assert (first, second, some.take(NOW)) == ({"a": ["a1"]}, {"a": ["a2"]}, {})
    some.accepted(first, NOW)
    assert some.take(NOW) == {"a": ["a3"]}


def test_one_item_stands_for_all_of_its_key_that_wait() -> None:
    some = keyed_queue(folds=True)
    some.add(["a1", "a2"], NOW)
    first = some.take(NOW)
    assert first == {"a": ["a1"]}
    some.add(["a3", "a4"], NOW)
    assert some.take(NOW) == {"a": ["a3"]}


def test_what_comes_while_the_first_call_is_under_way_waits_for_its_end_but_not_for_long() -> None:
    some = keyed_queue(join_s=0.02)
    some.add(["a1"], NOW)
    some.take(NOW)
    some.add(["a2"], NOW + 1)
    assert (some.take(NOW + 1), some.next_at()) == ({}, NOW + 1.02)
    assert some.take(NOW + 1.02) == {"a": ["a2"]}


def test_what_waits_for_the_first_call_goes_as_soon_as_that_has_ended() -> None:
    some = keyed_queue(join_s=0.02)
    some.add(["a1"], NOW)
    first = some.take(NOW)
    some.add(["a2"], NOW)
    some.accepted(first, NOW + 0.001)
    assert some.take(NOW + 0.001) == {"a": ["a2"]}


def test_the_bound_counts_what_is_under_way() -> None:
    some = keyed_queue(bound=3)
    some.add(["a1", "a2"], NOW)
    taken = some.take(NOW)
    assert some.add(["b1", "b2", "b3"], NOW) == 2
    assert (some.waiting, some.under_way) == (1, 2)
    some.accepted(taken, NOW)
    assert some.add(["c1", "c2", "c3"], NOW) == 1
    assert some.take(NOW) == {"b": ["b1"], "c": ["c1", "c2"]}


def test_what_was_rejected_waits_and_then_comes_before_what_came_later() -> None:
    some = keyed_queue(batch=2)
    some.add(["a1", "a2", "a3"], NOW)
    assert some.rejected(some.take(NOW), NOW), "the first"
    assert some.take(NOW) == {}
    assert NOW < some.next_at() <= NOW + LONGEST_S
    assert some.take(some.next_at()) == {"a": ["a1", "a2"]}


def test_what_was_rejected_is_folded_with_what_came_meanwhile() -> None:
    some = keyed_queue(folds=True)
    some.add(["a1"], NOW)
    taken = some.take(NOW)
    some.add(["a2"], NOW)
    some.rejected(taken, NOW)
    assert (some.waiting, some.under_way) == (1, 0)
    assert some.take(NOW + LONGEST_S) == {"a": ["a2"]}


def test_while_a_key_waits_others_do_not() -> None:
    some = keyed_queue()
    some.add(["a1"], NOW)
    some.rejected(some.take(NOW), NOW)
    some.add(["a2", "b1"], NOW)
    assert some.take(NOW) == {"b": ["b1"]}


def pauses(rejections: int) -> list[float]:
    """The pause of each of a thousand keys that was rejected so often in a row."""
    found = []
    for seed in range(1_000):
        some, at = keyed_queue(seed=seed), NOW
        some.add(["a"], at)
        for _ in range(rejections):
            some.rejected(some.take(at), at)
            before, at = at, some.next_at()
        found.append(at - before)
    return found


@pytest.mark.parametrize(("rejections", "longest"), [(1, 0.2), (3, 0.8), (20, LONGEST_S)])
def test_pauses_grow_with_each_rejection_and_are_spread(rejections: int, longest: float) -> None:
    found = pauses(rejections)
    assert 0.9 * longest < max(found) <= longest + 0.001
    assert min(found) < 0.1 * longest


def test_once_it_was_accepted_a_key_begins_with_short_pauses_again() -> None:
    some = keyed_queue()
    some.add(["a"], NOW)
    for _ in range(20):
        some.rejected(some.take(some.next_at()), NOW)
    taken = some.take(NOW + LONGEST_S)
    some.add(["a"], NOW)
    assert some.accepted(taken, NOW), "after rejections"
    assert some.rejected(some.take(NOW), NOW), "the first again"
    assert some.next_at() <= NOW + 0.2


def test_where_more_keys_than_threads_were_rejected_all_wait() -> None:
    some = keyed_queue(threads=2, batch=1)
    for key in "abc":
        some.add([key], NOW)
        some.rejected(some.take(NOW), NOW)
    some.add(["d"], NOW)
    assert some.take(NOW) == {}
    assert some.next_at() <= NOW + 0.8, "the pause after three rejections in a row"
    assert "d" in some.take(some.next_at())


def test_one_key_that_is_rejected_for_ever_lets_all_others_go() -> None:
    some = keyed_queue(threads=2)
    some.add(["a"], NOW)
    for round in range(20):
        now = NOW + round * LONGEST_S
        some.rejected(some.take(now), now)
    some.add(["b"], now)
    assert some.take(now) == {"b": ["b"]}


def test_an_acceptance_ends_the_wait_of_all() -> None:
    some = keyed_queue(threads=1, batch=1)
    some.add(["z", "a", "b"], NOW)
    under_way = some.take(NOW)
    for _ in "ab":
        some.rejected(some.take(NOW), NOW)
    some.add(["c"], NOW)
    assert some.take(NOW) == {}
    assert some.accepted(under_way, NOW)
    assert some.take(NOW) == {"c": ["c"]}


def test_an_acceptance_between_rejections_proves_that_they_are_the_keys_own() -> None:
    some = keyed_queue(threads=2, batch=1)
    some.add(["x", "a", "b", "c"], NOW)
    under_way = some.take(NOW)
    for _ in "ab":
        some.rejected(some.take(NOW), NOW)
    some.accepted(under_way, NOW)
    some.rejected(some.take(NOW), NOW)
    some.add(["d"], NOW)
    assert some.take(NOW) == {"d": ["d"]}


def test_what_comes_after_a_rejection_shortens_no_pause() -> None:
    for _ in range(20):
        some = keyed_queue(batch=1, join_s=1e-6)
        some.add(["a1", "a2"], NOW)
        first = some.take(NOW)
        some.take(NOW)
        some.rejected(first, NOW)
        pause_ends = some.next_at()
        some.add(["a3"], NOW)
        assert some.next_at() == pause_ends


def test_of_what_is_done_nothing_is_kept() -> None:
    some = keyed_queue(join_s=0.02)
    some.add(["a1"], NOW)
    first = some.take(NOW)
    some.add(["a2"], NOW)
    some.accepted(first, NOW)
    some.accepted(some.take(NOW), NOW)
    assert (some._states, some.waiting, some.under_way) == ({}, 0, 0)
    assert some.take(NOW + 1) == {}
    assert some.next_at() == inf


def grouped(threads: int = 4) -> KeyedQueue[str]:
    """Items whose key is their first two letters, and whose group is their first one."""
    made: KeyedQueue[str] = KeyedQueue(
        Rules(threads, 100, 2, folds=True), key=lambda item: item[:2], group=lambda item: item[0]
    )
    made._random = Random(1)
    return made


def test_a_batch_has_items_of_one_group() -> None:
    some = grouped()
    some.add(["a1", "b1", "a2"], NOW)
    assert some.take(NOW) == {"a1": ["a1"], "a2": ["a2"]}
    assert some.take(NOW) == {"b1": ["b1"]}


def test_a_group_that_is_rejected_holds_up_no_other_and_one_thread_at_most() -> None:
    some = grouped(threads=2)
    some.add(["a1", "a2", "a3", "b1"], NOW)
    some.rejected(some.take(NOW), NOW)
    assert some.take(NOW) == {"b1": ["b1"]}
    some.add(["b2"], NOW)
    assert some.take(NOW) == {"b2": ["b2"]}
    assert NOW < some.next_at() < NOW + LONGEST_S
    assert some.take(NOW + LONGEST_S).keys() <= {"a1", "a2", "a3"}
    some.add(["a4", "b3"], NOW + LONGEST_S)
    assert some.take(NOW + LONGEST_S) == {"b3": ["b3"]}
    assert some.take(NOW + LONGEST_S) == {}, "another call of the first group would hold another thread"
