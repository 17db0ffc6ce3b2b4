"""The doctor: a sound ledger has nothing, and each planted fault is found, by its check and its place."""

import json
import shutil
import time
import zoneinfo
from collections.abc import Callable, Iterator
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import redis
import tzdata  # type: ignore[import-untyped]

from duecourse.ledger.connect import connect
from duecourse.ledger.keys import keys_of, rounds_key, shards_key
from duecourse.ledger.layout import VERSION
from duecourse.ledger.many_tasks import Act, Bulk
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.queue import Rate
from duecourse.ledger.sharding import Sharding
from duecourse.ledger.task import Shard, Status
from duecourse_local.doctor import python_build, targets, zones
from duecourse_local.doctor.examination import Examination
from duecourse_local.doctor.finding import Finding, Level
from tests.support.commands import in_this_process, run
from tests.support.ledger import LEASE_MS, SHARD, claim, new
from tests.support.redis_server import REDIS, RedisServer, need

pytestmark = pytest.mark.slow

KEYS = keys_of("duecourse", Shard())
LARGE = '"' + 3_000 * "x" + '"'
MINUTES = 60_000


@pytest.fixture
def server() -> Iterator[RedisServer]:
    """A server that keeps what it is given, with a ledger that is in use and a tick that has just been."""
    with RedisServer(need(REDIS[-1])) as server, connect(server.url) as client:
        client.config_set("appendonly", "yes")
        ledger = Ledger(client)
        ledger.add([new("running")])
        claim(ledger)
        ledger.add([new("later", delay_ms=30 * MINUTES, group="g"), new("large", payload=LARGE, delay_ms=20 * MINUTES)])
        client.hset(rounds_key("duecourse"), "0", now(client))
        yield server


@pytest.fixture
def client(server: RedisServer) -> Iterator[redis.Redis]:
    with connect(server.url) as client:
        yield client


def now(client: redis.Redis) -> int:
    return int(client.time()[0]) * 1_000


def found(client: redis.Redis, *, events: bool = True) -> list[Finding]:
    return [one for _, part in Examination(client, "duecourse", events=events).run() for one in part]


def wrong(client: redis.Redis) -> dict[str, Finding]:
    return {one.check: one for one in found(client) if one.level in {Level.WARNING, Level.FAULT}}


def test_a_sound_ledger_has_no_fault_and_each_check_is_told(client: redis.Redis) -> None:
    assert wrong(client) == {}
    fine = {one.check for one in found(client) if one.level is Level.FINE}
    assert fine >= {"version", "round trip", "clock", "memory", "persistence", "tick"}


@pytest.fixture
def tables(tmp_path: Path) -> Iterator[Path]:
    """The system's tables of time zones, all of them as those of schedules, with no version yet."""
    shutil.copytree(Path(str(files("tzdata").joinpath("zoneinfo"))), tmp_path, dirs_exist_ok=True)
    (tmp_path / "tzdata.zi").unlink()
    zoneinfo.reset_tzpath([str(tmp_path)])
    yield tmp_path
    zoneinfo.reset_tzpath()


def test_time_zones_of_python_that_differ_from_schedules_are_named(tables: Path) -> None:
    ours = tzdata.IANA_VERSION
    (tables / "tzdata.zi").write_text("# version 2025b\n# more\n")
    [one] = zones.examine()
    assert (one.level, one.text.endswith("no clock differs")) == (Level.NOTE, True)
    shutil.copy(tables / "UTC", tables / "Africa" / "Cairo")
    [one] = zones.examine()
    said = f"Python's zoneinfo reads 2025b in {tables}, and schedules tzdata {ours}: clocks differ within a year in "
    assert (one.level, one.text) == (Level.NOTE, f"{said}Africa/Cairo")
    assert 'PYTHONTZPATH=""' in one.fix


def test_time_zones_of_one_version_are_fine(tables: Path) -> None:
    (tables / "+VERSION").write_text(f"{tzdata.IANA_VERSION}\n")
    assert [one.level for one in zones.examine()] == [Level.FINE]
    zoneinfo.reset_tzpath([])
    assert [one.level for one in zones.examine()] == [Level.FINE]


TRAINED = "'--enable-shared' '--enable-optimizations' '--with-lto'"
PLAIN = "'--prefix=/root/.pyenv/versions/3.11.7' '--enable-shared'"


@pytest.mark.parametrize(
    ("variables", "schemes", "optimised"),
    [
        ({"CONFIG_ARGS": TRAINED}, ("posix_prefix",), True),
        ({"CONFIG_ARGS": PLAIN, "PY_CORE_CFLAGS": "-O3 -fprofile-use -fprofile-correction"}, ("posix_prefix",), True),
        ({"CONFIG_ARGS": PLAIN}, ("posix_prefix",), False),
        # Each build's own Makefile has the flags, whether it was trained or not.
        ({"CONFIG_ARGS": PLAIN, "PGO_PROF_USE_FLAG": "-fprofile-use"}, ("posix_prefix",), False),
        ({"CONFIG_ARGS": PLAIN, "PGO_PROF_USE_FLAG": ""}, ("posix_prefix", "deb_system"), True),
        ({"CONFIG_ARGS": TRAINED, "Py_DEBUG": 1}, ("posix_prefix",), False),
        ({}, ("nt",), True),
    ],
    ids=["option", "flags", "plain", "plain-with-the-flags-of-the-Makefile", "Debian", "debug", "Windows"],
)
def test_a_python_that_was_built_without_optimisation_is_noted(
    variables: dict[str, Any], schemes: tuple[str, ...], *, optimised: bool
) -> None:
    [one] = python_build.examine(variables, schemes)
    assert one.level is (Level.FINE if optimised else Level.NOTE)
    assert ("--enable-optimizations" in one.fix) is not optimised


def evict(client: redis.Redis) -> None:
    client.config_set("maxmemory-policy", "allkeys-lru")


def fill(client: redis.Redis) -> None:
    client.config_set("maxmemory", int(int(client.info("memory")["used_memory"]) * 1.05))


def keep_nothing(client: redis.Redis) -> None:
    client.config_set("appendonly", "no")
    client.config_set("save", "")


def keep_snapshots(client: redis.Redis) -> None:
    client.config_set("appendonly", "no")
    client.config_set("save", "3600 1")


def stop_ticks(client: redis.Redis) -> None:
    client.hset(rounds_key("duecourse"), "0", now(client) - 20 * MINUTES)


def never_tick(client: redis.Redis) -> None:
    client.delete(rounds_key("duecourse"))


def lapse(client: redis.Redis) -> None:
    client.zadd(KEYS.leased, {"-/running": now(client) - 5 * MINUTES})


def forget_to_claim(client: redis.Redis) -> None:
    Ledger(client).add([new("overdue", due_at=now(client) - 5 * MINUTES)])


def lose_the_bell(client: redis.Redis) -> None:
    Ledger(client).add([new("soon", delay_ms=30_000)])
    client.delete(KEYS.bell)


def hang_the_bell_late(client: redis.Redis) -> None:
    Ledger(client).add([new("soon", delay_ms=30_000)])
    client.set(KEYS.bell, now(client) + 60 * MINUTES, px=60 * MINUTES)


def lose_an_entry(client: redis.Redis) -> None:
    client.zrem(KEYS.due("-"), "-/later")


def lose_a_group(client: redis.Redis) -> None:
    client.delete(KEYS.groups)


def lose_a_turn(client: redis.Redis) -> None:
    client.delete(KEYS.heads)


def lose_a_record(client: redis.Redis) -> None:
    client.hdel(KEYS.tasks, "-/later")


def purge_what_was_put_aside(client: redis.Redis) -> None:
    ledger = Ledger(client)
    ledger.add([new("aside", kind="ghost")])
    ledger.claim(SHARD, 100, lease_ms=LEASE_MS, kinds=["work"])
    ledger.bulk("default", Bulk(Act.DELETE, (Status.SCHEDULED,), "ghost", limit=9))


def damage_a_record(client: redis.Redis) -> None:
    client.hset(KEYS.tasks, "-/later", b"\x05nonsense")


def lose_a_payload(client: redis.Redis) -> None:
    [field] = [name for name in client.hkeys(KEYS.tasks) if b"=" in name]
    client.hdel(KEYS.tasks, field)


def cut_the_history(client: redis.Redis) -> None:
    client.hset(KEYS.history, "hours", b"\x00\x07\x00\x00\x00\x09\x04")


def interrupt_a_reshard(client: redis.Redis) -> None:
    client.hset(KEYS.meta, "shards", "1>4#abcdef")


def write_as_another_release(client: redis.Redis) -> None:
    client.hset(KEYS.meta, "layout", 99)


def forget_the_shard(client: redis.Redis) -> None:
    client.srem(shards_key("duecourse"), "default/0/1")


def disagree(client: redis.Redis) -> None:
    client.sadd(shards_key("duecourse"), "default/0/1", "default/1/2")


def add_foreign_keys(client: redis.Redis) -> None:
    with client.pipeline(transaction=False) as pipe:
        for n in range(11_000):
            pipe.set(f"session:{n}", "", ex=3_600)
        pipe.execute()


FAULTS: dict[str, tuple[Callable[[redis.Redis], None], str, str]] = {
    "evicts": (evict, "eviction", "allkeys-lru"),
    "full": (fill, "memory", "% of maxmemory"),
    "no persistence": (keep_nothing, "persistence", "a restart loses all tasks"),
    "snapshots": (keep_snapshots, "persistence", "snapshots alone"),
    "no tick for long": (stop_ticks, "tick", "the last trace of a tick"),
    "never a tick": (never_tick, "tick", "no tick has ever"),
    "lapsed": (lapse, "leases", "1 lease lapsed"),
    "overdue": (forget_to_claim, "due tasks", "nobody claims it"),
    "no bell": (lose_the_bell, "bell", "missing"),
    "late bell": (hang_the_bell_late, "bell", "late"),
    "no entry": (lose_an_entry, "tasks without an entry", "-/later"),
    "no group": (lose_a_group, "tasks without an entry", "-/later"),
    "no turn": (lose_a_turn, "tasks without an entry", "1: -"),
    "no record": (lose_a_record, "entries without a task", "'-/later' in due:-"),
    "purged": (purge_what_was_put_aside, "entries without a task", "-/aside"),
    "damaged": (damage_a_record, "unreadable task", "later of tenant -"),
    "no payload": (lose_a_payload, "unreadable task", "large of tenant -"),
    "no history": (cut_the_history, "history", "cannot be read: a line is cut off"),
    "interrupted reshard": (interrupt_a_reshard, "reshard", "from 1 to 4 shards"),
    "another version": (write_as_another_release, "version of records", "of version 99, and this release reads"),
    "not registered": (forget_the_shard, "record of shards", "lacks it"),
    "two counts": (disagree, "record of shards", "[1, 2]"),
    "foreign keys": (add_foreign_keys, "foreign keys", "keys of other programs"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_each_planted_fault_is_found(client: redis.Redis, fault: str) -> None:
    plant, check, text = FAULTS[fault]
    plant(client)
    assert check in wrong(client), wrong(client)
    finding = wrong(client)[check]
    assert text in finding.text
    assert finding.fix


@pytest.mark.parametrize(("version", "fix"), [(VERSION - 1, "commit 9d900a4"), (VERSION + 1, "the release that wrote")])
def test_records_of_another_version_are_mended_as_the_version_asks(client: redis.Redis, version: int, fix: str) -> None:
    client.hset(KEYS.meta, "layout", version)
    assert fix in wrong(client)["version of records"].fix


def test_shards_with_other_settings_than_their_queue_are_named(client: redis.Redis) -> None:
    ledger = Ledger(client, sharding=Sharding({"wide": 4}))
    ledger.configure("wide", {"paused": True, "max_running": 8})
    third = keys_of("duecourse", Shard("wide", 2)).meta
    client.hdel(third, "paused")
    client.hset(third, "max_running", 9)
    [one] = [one for one in found(client) if one.check == "settings"]
    assert (one.place, one.text) == ("wide/2", "its settings differ from the queue's: max_running, paused")
    assert one.fix == "set them again: duecourse limits wide"
    client.hset(third, "revision", 1)
    [one] = [one for one in found(client) if one.check == "settings"]
    assert one.fix == "nothing to do: the next tick sets them"
    ledger.sweep(Shard("wide", 2), retention_ms=1)
    assert [one for one in found(client) if one.check == "settings"] == []


@pytest.mark.parametrize("limit", [{"max_running": 20}, {"rate": Rate(10, 1_000)}, {"tenant_max_running": 20}])
def test_a_limit_that_is_not_reached_hides_nothing(client: redis.Redis, limit: dict[str, Any]) -> None:
    Ledger(client).configure("default", limit)
    lose_the_bell(client)
    assert wrong(client)["bell"].text.startswith("is missing")
    forget_to_claim(client)
    assert "nobody claims it" in wrong(client)["due tasks"].text


@pytest.mark.parametrize("limit", ["max_running", "tenant_max_running"])
def test_tasks_that_wait_for_a_limit_are_no_fault_and_are_said_not_to_be_checked(
    client: redis.Redis, limit: str
) -> None:
    Ledger(client).configure("default", {limit: 1})
    forget_to_claim(client)
    assert wrong(client) == {}
    [note] = [one for one in found(client) if one.check == "due tasks"]
    assert (note.level, note.text) == (Level.NOTE, f"not checked: they wait, for the limit {limit} is reached")


def test_a_bell_that_a_tick_hangs_again_in_time_is_a_note(client: redis.Redis) -> None:
    client.delete(KEYS.bell)
    assert wrong(client) == {}
    [note] = [one for one in found(client) if one.check == "bell"]
    assert (note.level, note.fix) == (Level.NOTE, "nothing to do: the next tick hangs it again")


def test_the_age_of_a_ticks_trace_is_measured_by_what_ticks_leave(client: redis.Redis) -> None:
    client.hset(rounds_key("duecourse"), "0", now(client) - 4 * MINUTES)
    [tick] = [one for one in found(client) if one.check == "tick"]
    assert tick.level is Level.FINE
    assert "4 minutes old: ticks leave one each 10 minutes" in tick.text


def test_a_deployment_that_renews_its_entry_is_a_trace_of_a_tick(client: redis.Redis) -> None:
    never_tick(client)
    Ledger(client).deployments().write({"report"}, set())
    assert "tick" not in wrong(client)


def test_events_that_another_program_turned_off_are_found_where_somebody_listens(client: redis.Redis) -> None:
    client.config_set("notify-keyspace-events", "")
    with client.pubsub() as listening:
        listening.psubscribe("duecourse:*")
        listening.get_message(timeout=5)
        assert "lacks 'Exe'" in wrong(client)["key events"].text
        client.config_set("notify-keyspace-events", "AE")
        assert "key events" not in wrong(client)
        client.config_set("notify-keyspace-events", "")
        assert not [one for one in found(client, events=False) if one.check == "key events" and one.level > Level.NOTE]


def test_events_that_nobody_hears_are_noted(client: redis.Redis) -> None:
    client.config_set("notify-keyspace-events", "Exe")
    [finding] = [one for one in found(client) if one.check == "key events"]
    assert finding.level is Level.NOTE
    assert "nobody listens" in finding.text


def test_a_target_that_does_not_exist_and_a_timeout_over_the_lease_are_found() -> None:
    timeouts = {"report": 30.0, "slow": 900.0}
    given = {"a": "lambda:report", "b": "lambda:slow", "c": "lambda:missing", "d": "sqs:jobs", "poll": "inline"}
    found = [(one.level, one.text.split(",")[0]) for one in targets.examine(given, 90_000, timeouts.get)]
    assert found == [
        (Level.FINE, "kind a: report"),
        (Level.WARNING, "slow may run for 900 s"),
        (Level.FAULT, "kind c goes to lambda:missing"),
    ]


def test_a_task_that_changes_meanwhile_is_no_fault(client: redis.Redis) -> None:
    ledger, until = Ledger(client), time.monotonic() + 2
    while time.monotonic() < until:
        ledger.add([new(f"x-{n}", payload=LARGE) for n in range(50)])
        claim(ledger)
        assert not {"tasks without an entry", "entries without a task", "unreadable task"} & wrong(client).keys()


def test_the_command_tells_what_it_found_and_answers_by_its_exit_code(client: redis.Redis, server: RedisServer) -> None:
    sound = run("doctor", "--store", server.url)
    assert (sound.returncode, "fault" in sound.stdout) == (0, False), sound.stdout + sound.stderr
    evict(client)
    sick = in_this_process("doctor", "--store", server.url, "--json")
    assert sick.exit_code == 1
    [finding] = [one for one in json.loads(sick.stdout) if one["check"] == "eviction"]
    assert python_build.CHECK in {one["check"] for one in json.loads(sick.stdout)}
    assert finding["level"] == "fault"
    assert "noeviction" in finding["fix"]


def test_an_examination_tells_of_each_few_hundred_tasks_it_has_looked_at(client: redis.Redis) -> None:
    Ledger(client).add([new(f"t-{n}", delay_ms=MINUTES, group="g") for n in range(1_000)])
    exam = Examination(client, "duecourse", events=True)
    told = [exam.looked for _ in exam.run()]
    assert told[-1] >= 3 * 1_000, "records, and entries of two indexes"
    assert max(after - before for before, after in pairwise(told)) <= 500


def test_a_long_examination_writes_its_progress_where_no_bar_is_drawn(
    client: redis.Redis, server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    Ledger(client).add([new(f"t-{n}", delay_ms=MINUTES) for n in range(1_000)])
    monkeypatch.setattr("duecourse_local.cli.doctor.SILENCE_S", 0.0)
    done = in_this_process("doctor", "--store", server.url, "--json")
    told = [line for line in done.stderr.splitlines() if line.endswith("tasks and entries of indexes examined")]
    assert len(told) > 4
    assert json.loads(done.stdout)
