"""A bell that hangs rings on time: by the timer, by events, with notifications off, beside other programs' keys."""

import logging
from itertools import count, pairwise

import pytest

from duecourse.base.json_text import Json
from duecourse.errors import InvocationRejected
from duecourse.ledger.connect import connect
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.task import NewTask, Shard
from tests.support.bridges import NAMESPACE, BellSetter, Recorder, bell_setter, bridging
from tests.support.redis_server import FLOOR, RedisServer, need
from tests.support.stalls import on_time_ms
from tests.support.wait import until

pytestmark = pytest.mark.slow

ON_TIME_MS = 400
"""Far more than the two milliseconds that a ring takes, for machines with other work; far less than anything but the
timer takes: a beat ten seconds, a deadman one, Redis itself several beside other programs' keys."""


def rings_on_time(bells: BellSetter, recorder: Recorder, bell: str, in_ms: int = 150) -> None:
    before = len(recorder.of(bell))
    with on_time_ms(ON_TIME_MS) as most_ms:
        at = bells.hang(bell, in_ms)
        until(lambda: len(recorder.of(bell)) > before)
        assert 0 < recorder.of(bell)[before].at - at < most_ms()


def test_a_bell_rings_just_after_its_time_and_once(server: RedisServer, bells: BellSetter, recorder: Recorder) -> None:
    bell, other = bells.shard("default/0"), bells.shard("default/1")
    with bridging(server, recorder) as bridge:
        until(lambda: recorder.of(bell))
        rings_on_time(bells, recorder, bell)
        rings_on_time(bells, recorder, other)
        assert len(recorder.of(bell)) == 2, "one ring of the first sweep, one of the bell"
        assert bridge.stats().events


def test_a_ring_is_the_event_that_the_design_shows(server: RedisServer, bells: BellSetter, recorder: Recorder) -> None:
    bell = bells.shard("default/0")
    with bridging(server, recorder), on_time_ms(ON_TIME_MS) as most_ms:
        until(lambda: recorder.of(bell))
        at = bells.hang(bell, 30)
        event = until(lambda: recorder.of(bell)[1:])[0].event
    (ring,) = event.pop("rings")
    assert event == {"source": "duecourse.bridge", "version": "1"}
    assert (ring["key"], ring["channel"]) == ("test:{default/0}:bell", "__keyevent@0__:expired")
    assert at <= ring["heard_at"] < at + most_ms()


def test_a_bell_nobody_told_of_rings_by_its_event(server: RedisServer, bells: BellSetter, recorder: Recorder) -> None:
    bell = "test:{unheard/0}:bell"
    with bridging(server, recorder):
        bells.hang(bell, 20, tell=False)
        until(lambda: not bells.redis.exists(bell))
        until(lambda: recorder.of(bell))


def test_a_shard_the_bridge_never_saw_is_learnt_from_its_head(
    server: RedisServer, bells: BellSetter, recorder: Recorder
) -> None:
    with bridging(server, recorder):
        rings_on_time(bells, recorder, "test:{new-queue/0}:bell")


def test_a_bell_that_was_taken_down_does_not_ring(server: RedisServer, bells: BellSetter, recorder: Recorder) -> None:
    bell = bells.shard("default/0")
    with bridging(server, recorder):
        until(lambda: recorder.of(bell))
        at = bells.hang(bell, 1_000)
        assert bells.redis.delete(bell) == 1
        bells.redis.publish("test:{default/0}:head", "0")
        rings_on_time(bells, recorder, bells.shard("default/1"), in_ms=1_100)
        assert bells.now() > at
        assert len(recorder.of(bell)) == 1


def test_a_bell_hung_sooner_rings_sooner(server: RedisServer, bells: BellSetter, recorder: Recorder) -> None:
    bell = bells.shard("default/0")
    with bridging(server, recorder):
        until(lambda: recorder.of(bell))
        bells.hang(bell, 3_600_000)
        rings_on_time(bells, recorder, bell)


def test_without_notifications_the_timer_alone_is_on_time(recorder: Recorder) -> None:
    with RedisServer(need(FLOOR), "--rename-command", "CONFIG", "") as server, bell_setter(server) as bells:
        bell = bells.shard("default/0")
        with bridging(server, recorder) as bridge:
            until(lambda: recorder.of(bell))
            rings_on_time(bells, recorder, bell)
            rings_on_time(bells, recorder, bell, in_ms=500)
            assert bridge.stats().events is False


def test_that_there_are_no_notifications_is_told_loudly_and_once(
    recorder: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    server = RedisServer(need(FLOOR), "--rename-command", "CONFIG", "")
    with server, bell_setter(server) as bells, bridging(server, recorder, beat_s=0.02):
        vanishing = bells.shard("default/0")
        bells.hang(vanishing, 3_600_000)
        bells.redis.delete(vanishing)
        until(lambda: recorder.of(vanishing))
    loud = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(loud) == 1
    assert "EVENTS OFF" in loud[0].getMessage()


def test_verbs_that_rehang_a_bell_swallow_no_ring_with_events_off() -> None:
    with RedisServer(need(FLOOR), "--rename-command", "CONFIG", "") as server, connect(server.url) as client:
        ledger, shard, late = Ledger(client, NAMESPACE), Shard(), list[int]()

        def drain(_: list[str]) -> Json:
            claim = ledger.claim(shard, 100, lease_ms=60_000)
            late.extend(claim.now - task.due_at for task in claim.tasks)
            return {"claimed": len(claim.tasks), "backlog": claim.backlog}

        with bridging(server, Recorder(drain)), on_time_ms(500) as most_ms:
            first = ledger.now() + 100
            ledger.add([NewTask(f"due-{n}", "noop", due_at=first + 20 * n) for n in range(50)])
            for n in count():
                ledger.add([NewTask(f"far-{n}", "noop", delay_ms=3_600_000)])
                if len(late) == 50 or ledger.now() > first + 5_000:
                    break
            assert len(late) == 50
            assert max(late) < most_ms(), "later ones waited for the deadman, a second off"


def test_notifications_turned_off_later_are_told_and_set_again(
    server: RedisServer, bells: BellSetter, recorder: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    bell = bells.shard("default/0")
    with bridging(server, recorder, beat_s=0.1):
        until(lambda: recorder.of(bell))
        bells.redis.config_set("notify-keyspace-events", "")
        until(lambda: "notifications were turned off" in caplog.text)
        until(lambda: bells.redis.config_get("notify-keyspace-events")["notify-keyspace-events"])
    assert "EVENTS OFF" not in caplog.text


def test_notifications_forced_off_are_told_loudly_and_rings_stay_on_time(
    server: RedisServer, bells: BellSetter, recorder: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    bell = bells.shard("default/0")
    with bridging(server, recorder, beat_s=1.0) as bridge, server.client(username="admin", password="pw") as admin:
        until(lambda: recorder.of(bell))
        bells.redis.acl_setuser("admin", enabled=True, passwords=["+pw"], commands=["+@all"], keys=["*"])
        bells.redis.execute_command("ACL", "SETUSER", "default", "-config")
        admin.config_set("notify-keyspace-events", "")
        until(lambda: "EVENTS OFF" in caplog.text)
        for _ in range(3):
            rings_on_time(bells, recorder, bell)
        admin.config_set("notify-keyspace-events", "Exe")
        until(lambda: bridge.stats().events)
    assert caplog.text.count("EVENTS OFF") == 1
    assert "events on" in caplog.text


def test_other_programs_volatile_keys_do_not_delay_a_ring(
    server: RedisServer, bells: BellSetter, recorder: Recorder
) -> None:
    pipe = bells.redis.pipeline(transaction=False)
    for n in range(20_000):
        pipe.set(f"foreign:{n}", "x", px=500 if n % 10 == 0 else 3_600_000)
    pipe.execute()
    with bridging(server, recorder):
        for n in range(5):
            rings_on_time(bells, recorder, bells.shard(f"default/{n}"))
    assert not any(key.startswith("foreign") for invocation in recorder.invocations for key in invocation.keys)


def test_other_programs_flags_are_kept(recorder: Recorder) -> None:
    with RedisServer(need(FLOOR), "--notify-keyspace-events", "Kg$") as server, bell_setter(server) as bells:
        with bridging(server, recorder):
            pass
        assert set(bells.redis.config_get("notify-keyspace-events")["notify-keyspace-events"]) == set("Kg$Exe")


def test_a_queue_where_nothing_can_be_claimed_is_not_hot(server: RedisServer, bells: BellSetter) -> None:
    bell = bells.shard("paused/0")

    def claim_nothing(_: list[str]) -> Json:
        bells.hang(bell, 1000)
        return {"claimed": 0, "backlog": 1000}

    recorder = Recorder(claim_nothing)
    with bridging(server, recorder, beat_s=0.2):
        until(lambda: len(recorder.of(bell)) >= 4)
    times = [invocation.at for invocation in recorder.of(bell)]
    assert min(late - soon for soon, late in pairwise(times)) > 900


def test_backlog_is_rung_for_again_at_once(server: RedisServer, bells: BellSetter) -> None:
    bell = bells.shard("default/0")
    left = [500, 300, 100, 0]
    recorder = Recorder(lambda _: {"claimed": 200, "backlog": left.pop(0)})
    with bridging(server, recorder):
        until(lambda: not left)
    times = [invocation.at for invocation in recorder.of(bell)]
    assert times[-1] - times[0] < 1000


def test_a_refused_invocation_is_tried_again(
    server: RedisServer, bells: BellSetter, caplog: pytest.LogCaptureFixture
) -> None:
    refusals = 3

    def refuse(_: list[str]) -> Json:
        if len(recorder.invocations) <= refusals:
            raise InvocationRejected("on_expired failed: throttled")
        return {"claimed": 1, "backlog": 0}

    recorder = Recorder(refuse)
    bell = bells.shard("default/0")
    with bridging(server, recorder) as bridge:
        until(lambda: "accepts rings again" in caplog.text)
        assert bridge.stats().rejected == refusals
    assert len(recorder.of(bell)) == refusals + 1
    assert caplog.text.count("the function rejects rings") == 1
