"""What every store remembers of requests that were sent with a key."""

import pytest

from duecourse.ledger.connect import connect
from duecourse.ledger.keys import requests_keys
from duecourse.ledger.operation_types import KEPT_MS, PRUNE, KeyedRequest, RequestState, SavedResponse
from duecourse.ledger.operations.ledger import Ledger
from tests.support.clock import HandClock
from tests.support.stores import servers

ONE, TWO = b"1" * 8, b"2" * 8
LOCK_MS = 16_000
SENT = KeyedRequest("-", 'order "42" \\ é', b"f" * 32)


def fresh(begun_at: int) -> SavedResponse:
    return SavedResponse(RequestState.NEW, begun_at=begun_at)


def test_a_request_is_its_beginners_alone_until_it_has_ended(ledger: Ledger, clock: HandClock) -> None:
    idempotency = ledger.idempotency()
    assert idempotency.begin(SENT, ONE, LOCK_MS) == fresh(ledger.now())
    clock.advance(1_000)
    assert idempotency.begin(SENT, TWO, LOCK_MS) == SavedResponse(RequestState.UNDER_WAY, left_ms=LOCK_MS - 1_000)
    assert idempotency.end(SENT, ONE, b"\x00answer")
    assert idempotency.begin(SENT, TWO, LOCK_MS) == SavedResponse(RequestState.ENDED, b"\x00answer")


def test_a_key_stands_for_one_request(ledger: Ledger) -> None:
    idempotency, other = ledger.idempotency(), SENT._replace(fingerprint=b"g" * 32)
    idempotency.begin(SENT, ONE, LOCK_MS)
    assert idempotency.begin(other, TWO, LOCK_MS) == SavedResponse(RequestState.OTHER)
    idempotency.end(SENT, ONE, b"answer")
    assert idempotency.begin(other, TWO, LOCK_MS) == SavedResponse(RequestState.OTHER)
    assert not idempotency.end(other, ONE, b"another")


def test_tenants_and_keys_are_told_apart(ledger: Ledger) -> None:
    idempotency = ledger.idempotency()
    idempotency.begin(SENT, ONE, LOCK_MS)
    assert idempotency.begin(SENT._replace(tenant="acme"), TWO, LOCK_MS) == fresh(ledger.now())
    assert idempotency.begin(SENT._replace(key="other"), TWO, LOCK_MS) == fresh(ledger.now())


def test_a_lost_reply_may_be_asked_for_again(ledger: Ledger, clock: HandClock) -> None:
    idempotency, begun_at = ledger.idempotency(), ledger.now()
    idempotency.begin(SENT, ONE, LOCK_MS)
    clock.advance(3_000)
    assert idempotency.begin(SENT, ONE, LOCK_MS) == fresh(begun_at), "its beginner has done nothing yet"
    assert [idempotency.end(SENT, ONE, b"answer") for _ in range(2)] == [True, True]
    assert not idempotency.end(SENT, ONE, b"another answer")


def test_a_lost_reply_hides_no_earlier_try(ledger: Ledger, clock: HandClock) -> None:
    idempotency, begun_at = ledger.idempotency(), ledger.now()
    idempotency.begin(SENT, ONE, LOCK_MS)
    clock.advance(LOCK_MS)
    for _ in range(2):
        assert idempotency.begin(SENT, TWO, LOCK_MS) == SavedResponse(RequestState.AGAIN, begun_at=begun_at)
        clock.advance(3_000)


def test_what_was_noted_is_told_to_its_own_beginner_too(ledger: Ledger) -> None:
    idempotency = ledger.idempotency()
    idempotency.begin(SENT, ONE, LOCK_MS)
    assert idempotency.note(SENT, ONE, b"seen")
    assert idempotency.begin(SENT, ONE, LOCK_MS).note == b"seen"


def test_what_died_is_given_to_another_when_its_time_is_over(ledger: Ledger, clock: HandClock) -> None:
    idempotency, begun_at = ledger.idempotency(), ledger.now()
    idempotency.begin(SENT, ONE, LOCK_MS)
    clock.advance(LOCK_MS - 1)
    assert idempotency.begin(SENT, TWO, LOCK_MS).state is RequestState.UNDER_WAY
    clock.advance(1)
    assert idempotency.begin(SENT, TWO, LOCK_MS) == SavedResponse(RequestState.AGAIN, begun_at=begun_at)
    assert not idempotency.end(SENT, ONE, b"late")
    assert not idempotency.release(SENT, ONE)
    assert not idempotency.forget(SENT, ONE)
    assert idempotency.end(SENT, TWO, b"answer")


def test_what_is_given_back_may_be_begun_again_at_once_and_nothing_else_under_its_key(ledger: Ledger) -> None:
    idempotency = ledger.idempotency()
    idempotency.begin(SENT, ONE, LOCK_MS)
    assert idempotency.release(SENT, ONE)
    assert idempotency.begin(SENT._replace(fingerprint=b"g" * 32), TWO, LOCK_MS) == SavedResponse(RequestState.OTHER)
    assert idempotency.begin(SENT, TWO, LOCK_MS).state is RequestState.AGAIN


def test_what_is_forgotten_leaves_its_key_free(ledger: Ledger, clock: HandClock) -> None:
    idempotency, other = ledger.idempotency(), SENT._replace(fingerprint=b"g" * 32)
    idempotency.begin(SENT, ONE, LOCK_MS)
    assert idempotency.forget(SENT, ONE)
    assert idempotency.begin(other, TWO, LOCK_MS) == fresh(ledger.now())
    idempotency.end(other, TWO, b"answer")
    assert not idempotency.forget(other, TWO)
    idempotency.begin(SENT._replace(key="another"), ONE, LOCK_MS)
    idempotency.forget(SENT._replace(key="another"), ONE)
    clock.advance(KEPT_MS)
    assert idempotency.prune() == 1, "in the order of time as well"


def test_a_request_is_remembered_for_a_day_from_its_first_beginning(ledger: Ledger, clock: HandClock) -> None:
    idempotency = ledger.idempotency()
    idempotency.begin(SENT, ONE, LOCK_MS)
    idempotency.release(SENT, ONE)
    clock.advance(KEPT_MS - 1)
    idempotency.begin(SENT, ONE, LOCK_MS)
    idempotency.end(SENT, ONE, b"answer")
    assert idempotency.prune() == 0
    assert idempotency.begin(SENT, TWO, LOCK_MS).state is RequestState.ENDED
    clock.advance(1)
    assert idempotency.begin(SENT, TWO, LOCK_MS) == fresh(ledger.now()), "pruned or not"
    assert idempotency.prune() == 0, "it stands anew"


def test_old_requests_are_forgotten_in_bounded_steps(ledger: Ledger, clock: HandClock) -> None:
    idempotency = ledger.idempotency()
    for number in range(PRUNE + 2):
        idempotency.begin(SENT._replace(key=str(number)), ONE, LOCK_MS)
    clock.advance(1)
    idempotency.begin(SENT, ONE, LOCK_MS)
    clock.advance(KEPT_MS - 1)
    assert [idempotency.prune() for _ in range(3)] == [PRUNE, 2, 0]
    assert idempotency.begin(SENT, TWO, LOCK_MS).state is not RequestState.NEW
    assert ledger.shards() == []


def test_in_redis_they_have_a_place_of_their_own_and_no_time_to_live(
    kind_of_store: str, request: pytest.FixtureRequest, ledger: Ledger
) -> None:
    if kind_of_store in ("memory", "leveldb"):
        pytest.skip("of Redis")
    idempotency = ledger.idempotency()
    idempotency.begin(SENT, ONE, LOCK_MS)
    idempotency.end(SENT, ONE, b"answer")
    with connect(servers(kind_of_store, request).url) as client:
        names = ["duecourse:{requests}:kept", "duecourse:{requests}:begun"]
        assert [client.ttl(name) for name in names] == [-1, -1]
        assert [client.type(name) for name in names] == [b"hash", b"zset"]


ACME = KeyedRequest("acme", "key", b"f" * 32, 10_000)
NAME = 2 * len("acme/0000") + 300
"""What a request counts for, beside its answer."""


def keyed(number: int) -> KeyedRequest:
    return ACME._replace(key=f"{number:04}")


def serve(ledger: Ledger, sent: KeyedRequest, size: int) -> SavedResponse:
    """Begins a request, and ends it with an answer of that size if it may be begun."""
    idempotency = ledger.idempotency()
    begun = idempotency.begin(sent, ONE, LOCK_MS)
    if begun.state is RequestState.NEW:
        assert idempotency.end(sent, ONE, b"x" * size)
    return begun


def test_a_tenant_has_as_many_bytes_kept_as_its_quota_and_then_as_many_a_day(ledger: Ledger, clock: HandClock) -> None:
    size = 1_000 - NAME
    states = [serve(ledger, keyed(number), size).state for number in range(11)]
    assert states == [RequestState.NEW] * 10 + [RequestState.OVER_QUOTA]
    assert serve(ledger, keyed(3), size) == SavedResponse(RequestState.ENDED, b"x" * size), "a repeat is answered"
    over = ledger.idempotency().begin(keyed(10), ONE, LOCK_MS)
    assert over == SavedResponse(RequestState.OVER_QUOTA, left_ms=-(-KEPT_MS * NAME // 10_000))
    clock.advance(over.left_ms - 1)
    assert serve(ledger, keyed(10), size).state is RequestState.OVER_QUOTA
    clock.advance(1)
    assert [serve(ledger, keyed(number), size).state for number in (10, 11)] == [
        RequestState.NEW,
        RequestState.OVER_QUOTA,
    ]
    assert serve(ledger, keyed(12)._replace(tenant="other"), size).state is RequestState.NEW
    assert serve(ledger, keyed(12)._replace(max_bytes=0), size).state is RequestState.NEW


def test_small_requests_without_an_answer_count_too_and_forgotten_ones_do_not(ledger: Ledger) -> None:
    idempotency = ledger.idempotency()
    for _ in range(100):
        assert idempotency.begin(ACME, ONE, LOCK_MS).state is RequestState.NEW
        assert idempotency.forget(ACME, ONE)
    states = [idempotency.begin(keyed(number), ONE, LOCK_MS).state for number in range(100)]
    assert states.count(RequestState.NEW) == 10_000 // NAME


def test_a_lost_reply_counts_once(ledger: Ledger) -> None:
    idempotency = ledger.idempotency()
    for _ in range(3):
        idempotency.begin(keyed(0), ONE, LOCK_MS)
    assert [idempotency.end(keyed(0), ONE, b"x" * 5_000) for _ in range(3)] == [True] * 3
    assert serve(ledger, keyed(1), 4_000 - NAME).state is RequestState.NEW
    assert serve(ledger, keyed(2), 0).state is RequestState.NEW


def test_an_answer_larger_than_the_quota_is_kept_and_its_tenant_waits_no_longer_than_two_days(
    ledger: Ledger, clock: HandClock
) -> None:
    assert serve(ledger, keyed(0), 1_000_000).state is RequestState.NEW
    assert serve(ledger, keyed(0), 0).answer == b"x" * 1_000_000
    assert serve(ledger, keyed(1), 0).left_ms <= 2 * KEPT_MS
    clock.advance(2 * KEPT_MS)
    assert serve(ledger, keyed(1), 0).state is RequestState.NEW


def test_a_quota_of_less_than_a_request_lets_one_through_at_a_time(ledger: Ledger) -> None:
    tiny = [keyed(number)._replace(max_bytes=1) for number in range(2)]
    assert [serve(ledger, one, 0).state for one in tiny] == [RequestState.NEW, RequestState.OVER_QUOTA]


def test_a_clock_that_is_put_back_stops_no_request(ledger: Ledger, clock: HandClock) -> None:
    serve(ledger, keyed(0), 100_000)
    clock.advance(-KEPT_MS)
    assert serve(ledger, keyed(1), 0).state is RequestState.NEW


def test_what_a_tenant_had_kept_leaves_nothing_behind(ledger: Ledger, clock: HandClock) -> None:
    for number in range(3):
        serve(ledger, keyed(number)._replace(tenant=f"t{number}"), 0)
    clock.advance(KEPT_MS)
    assert ledger.idempotency().prune() == 3
    command = ledger._scripts.command  # type: ignore[attr-defined]
    requests, begun, used = requests_keys("duecourse")
    assert [command("HLEN", requests), command("ZCARD", begun), command("ZCARD", used)] == [0, 0, 0]
