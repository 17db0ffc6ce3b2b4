"""The bridge with events off: it asks the server for no notifications and no flags, and keeps time all the same."""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import redis

from tests.ringing.test_bridge_on_time import rings_on_time
from tests.support.bridges import BellSetter, Recorder, bell_setter, bridging
from tests.support.redis_server import FLOOR, RedisServer, need
from tests.support.wait import until

pytestmark = pytest.mark.slow


@contextmanager
def monitoring(server: RedisServer) -> Iterator[list[str]]:
    """Every command that the server is sent meanwhile."""
    seen: list[str] = []
    with server.client() as client, client.monitor() as monitor:

        def listen() -> None:
            while (command := str(monitor.next_command()["command"])) != "ECHO over":
                seen.append(command)

        thread = threading.Thread(target=listen)
        thread.start()
        yield seen
        with server.client() as other:
            other.echo("over")
        thread.join()


def configured(bells: BellSetter) -> dict[str, int]:
    """Calls of CONFIG, by its subcommand."""
    stats = bells.redis.info("commandstats")
    return {name: stats[name]["calls"] for name in stats if name.startswith("cmdstat_config")}


def test_no_flag_is_read_or_set_and_no_key_event_subscribed_to(
    server: RedisServer, bells: BellSetter, recorder: Recorder
) -> None:
    before = configured(bells)  # Valkey 9.1 counts those of its own start
    with monitoring(server) as commands, bridging(server, recorder, events=False, beat_s=0.05) as bridge:
        bell = bells.shard("default/0")
        rings_on_time(bells, recorder, bell, in_ms=300)
        until(lambda: sum("canary" in c and c.startswith("PUBLISH") for c in commands) > 2)  # at each beat
        assert bridge.stats().events is False
    # MONITOR shows no CONFIG, the server's own count does.
    assert configured(bells) == before
    assert [c for c in commands if "__keyevent" in c] == []
    assert any(c.startswith("PSUBSCRIBE") for c in commands)
    assert not any("canary" in c and c.startswith("SET") for c in commands), "nor does it hang a bell that rings nobody"


def test_rings_are_as_late_as_ever(server: RedisServer, bells: BellSetter, recorder: Recorder) -> None:
    bell = bells.shard("default/0")
    with bridging(server, recorder, events=False):
        until(lambda: recorder.of(bell))
        for in_ms in (20, 150, 500):
            rings_on_time(bells, recorder, bell, in_ms)
        rings_on_time(bells, recorder, "test:{new-queue/0}:bell")


def test_a_server_without_config_is_served_without_a_word(recorder: Recorder, caplog: pytest.LogCaptureFixture) -> None:
    server = RedisServer(need(FLOOR), "--rename-command", "CONFIG", "")
    with server, bell_setter(server) as bells, bridging(server, recorder, events=False, beat_s=0.02):
        rings_on_time(bells, recorder, bells.shard("default/0"), in_ms=300)
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_a_bell_that_vanishes_unheard_is_rung_for_at_the_next_beat(
    server: RedisServer, bells: BellSetter, recorder: Recorder
) -> None:
    bell = bells.shard("default/0")
    with bridging(server, recorder, events=False, beat_s=0.1):
        bells.hang(bell, 3_600_000)
        until(lambda: recorder.of(bell))
        before = len(recorder.of(bell))
        bells.redis.delete(bell)
        until(lambda: len(recorder.of(bell)) > before)


def test_where_patterns_are_refused_the_heads_are_subscribed_to_by_name(
    server: RedisServer, bells: BellSetter, recorder: Recorder
) -> None:
    bell = bells.shard("default/0")
    with server.client() as admin:
        admin.execute_command("ACL", "SETUSER", "default", "-psubscribe")
    with bridging(server, recorder, events=False):
        until(lambda: recorder.of(bell))
        rings_on_time(bells, recorder, bell)


def test_a_connection_that_is_cut_is_made_anew(server: RedisServer, bells: BellSetter, recorder: Recorder) -> None:
    bell = bells.shard("default/0")
    with bridging(server, recorder, events=False) as bridge:
        until(lambda: recorder.of(bell))
        assert isinstance(bells.redis, redis.Redis)
        bells.redis.client_kill_filter(_type="pubsub")
        before = len(recorder.of(bell))
        until(lambda: len(recorder.of(bell)) > before)
        rings_on_time(bells, recorder, bell)
        assert bridge.stats().events is False
