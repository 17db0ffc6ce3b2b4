"""Data keys in every store: one seals, whoever was quicker, and none is ever lost."""

from concurrent.futures import ThreadPoolExecutor

from duecourse.ledger.operation_types import WrappedKey
from duecourse.ledger.operations.ledger import Ledger

FIRST, SECOND, THIRD = (WrappedKey(name, bytes([number]) * 40) for number, name in enumerate(("a1", "b2", "c3")))


def test_the_first_key_seals_until_another_takes_its_place(ledger: Ledger) -> None:
    keys = ledger.seal_keys()
    assert keys.current() is None
    assert keys.put(FIRST, "") == FIRST
    assert keys.put(SECOND, "") == FIRST, "another was quicker"
    assert keys.current() == FIRST
    assert keys.put(SECOND, "a1") == SECOND
    assert keys.put(THIRD, "a1") == SECOND
    assert keys.current() == SECOND
    assert [keys.get(key.id) for key in (FIRST, SECOND, THIRD)] == [FIRST.wrapped, SECOND.wrapped, None]


def test_of_many_who_make_the_first_key_at_once_all_use_one(ledger: Ledger) -> None:
    made = [WrappedKey(f"k{number}", bytes(40)) for number in range(8)]
    with ThreadPoolExecutor(8) as threads:
        agreed = set(threads.map(lambda key: ledger.seal_keys().put(key, ""), made))
    assert agreed == {ledger.seal_keys().current()}
