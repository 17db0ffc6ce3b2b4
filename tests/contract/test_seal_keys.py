"""Data keys in every store: one seals, whoever was quicker, and none is ever lost."""

from concurrent.futures import ThreadPoolExecutor

from duecourse.domain.task import Shard
from duecourse.ports.seals import WrappedKey
from duecourse.ports.store import Store
from tests.support.ledger import SHARD, new

FIRST, SECOND, THIRD = (WrappedKey(name, bytes([number]) * 40) for number, name in enumerate(("a1", "b2", "c3")))


def test_the_first_key_seals_until_another_takes_its_place(store: Store) -> None:
    keys = store.seal_keys()
    assert keys.look([]).current is None
    assert keys.put(FIRST, "") == FIRST
    assert keys.put(SECOND, "") == FIRST, "another was quicker"
    assert keys.look([]).current == FIRST
    assert keys.put(SECOND, "a1") == SECOND
    assert keys.put(THIRD, "a1") == SECOND
    assert keys.look([]).current == SECOND
    assert [keys.get(key.id) for key in (FIRST, SECOND, THIRD)] == [FIRST.wrapped, SECOND.wrapped, None]


def test_of_many_who_make_the_first_key_at_once_all_use_one(store: Store) -> None:
    made = [WrappedKey(f"k{number}", bytes(40)) for number in range(8)]
    with ThreadPoolExecutor(8) as threads:
        agreed = set(threads.map(lambda key: store.seal_keys().put(key, ""), made))
    assert agreed == {store.seal_keys().look([]).current}


def test_a_shard_of_the_newest_version_is_ready_whether_or_not_it_has_a_task(store: Store) -> None:
    assert store.seal_keys().look([SHARD]).ready == [SHARD]
    store.add([new("a")])
    other = Shard("other")
    assert store.seal_keys().look([SHARD, other]).ready == [SHARD, other]
