"""Export of a ledger and its restore: every task as it was, once, whatever is there already and wherever it is cut."""

import json
import os
import subprocess
from base64 import b64decode, b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from duecourse.errors import InvalidInput
from duecourse.ledger.keys import keys_of, seals_key
from duecourse.ledger.layout import VERSION
from duecourse.ledger.operation_types import Delivery, Reply, Settled, WrappedKey
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.queue import QueueSettings, Rate
from duecourse.ledger.record import HEAD as RECORD
from duecourse.ledger.reminder import QUEUE, Channel, Recipient, Reminder
from duecourse.ledger.schedule import Entry, FileState, Fold, Gap
from duecourse.ledger.sharding import Sharding
from duecourse.ledger.task import Ending, OnDuplicate, Shard, Status, Task
from duecourse.settings import Settings
from duecourse.tasks.http import show_task
from duecourse_local.backup.export import Export
from duecourse_local.backup.restore import Restore, Restored
from tests.support import redis_ledger
from tests.support.commands import in_this_process, run
from tests.support.ledger import LATER_MS, LEASE_MS, STATES, add, bring, claim, lease_of, new, settle
from tests.support.redis_server import REDIS, RedisServer, need
from tests.support.seals import LOCAL_KEY
from tests.support.wired import wired_with

EXPORTS = Path(__file__).parent / "fixtures" / "exports"
"""Exports by their commits, as its own code wrote them: `<commit>.jsonl`, and one of schedules alone."""
SHARDS = {"many": 3}
HEAD = '{"export": {"format": 1, "by": "duecourse 0.2.0", "namespace": "duecourse", "at": "2026-11-23T00:00:00Z"}}'
FILE = '{"file": {"number": 1, "digest": "d", "applied": true, "entries": [["default", "-", "daily"]]}}'
LARGE = json.dumps({"text": "é" * 20_000})


@pytest.fixture
def other() -> Iterator[RedisServer]:
    """Another server, which is empty."""
    with RedisServer(need(REDIS[-1])) as server:
        yield server


@pytest.fixture
def elsewhere(other: RedisServer) -> Iterator[redis.Redis]:
    """A client of the other server."""
    with redis.Redis.from_url(other.url) as client:
        yield client


def ledger_of(client: redis.Redis) -> Ledger:
    return Ledger(client, sharding=Sharding(SHARDS))


def lines_of(client: redis.Redis, *queues: str) -> list[str]:
    return list(Export(client, "duecourse", queues, pytest.fail).lines())


def restore(client: redis.Redis, lines: list[str], namespace: str = "duecourse") -> Restored:
    return Restore(client, namespace, 0, lambda _: None).run(lines)


def filled(client: redis.Redis) -> dict[tuple[str, str, str], Task]:
    """Tasks of all states that are not running, of several tenants and queues, some large, some in groups."""
    ledger = ledger_of(client)
    for state in STATES:
        if state != Status.LEASED:
            bring(ledger, state, f"{state}-1")
            bring(ledger, state, f"{state}-2", payload=LARGE, group="g")
    ledger.add(
        [new(f"m-{n}", queue="many", tenant=f"t-{n % 3}", delay_ms=LATER_MS, group=f"g-{n % 7}") for n in range(40)]
    )
    ledger.configure("many", {"max_running": 9, "rate": Rate(30, 60_000), "paused": True})
    return every(client)


def every(client: redis.Redis) -> dict[tuple[str, str, str], Task]:
    """All tasks, by queue, tenant and id, whose shards' keys agree."""
    ledger, found = ledger_of(client), {}
    for shard in ledger.shards():
        redis_ledger.check(client, shard)
        for name in client.hkeys(keys_of("duecourse", shard).tasks):
            tenant, _, id = name.decode().partition("/")
            if not set("=+") & set(id) and (task := ledger.get(shard.queue, id, tenant)):
                assert ledger.shard_of(shard.queue, id, task.group) == shard
                found[shard.queue, tenant, id] = task
    return found


def test_every_task_and_setting_is_as_it_was(redis_client: redis.Redis, elsewhere: redis.Redis) -> None:
    before = filled(redis_client)
    assert {task.status for task in before.values()} == set(Status) - {Status.LEASED}
    assert restore(elsewhere, lines_of(redis_client)) == Restored(len(before), 0)
    assert every(elsewhere) == before
    then, now = ledger_of(redis_client), ledger_of(elsewhere)
    assert now.settings_of(["many", "default"]) == then.settings_of(["many", "default"])
    assert set(now.shards()) == set(then.shards())


def test_what_is_there_stays(redis_client: redis.Redis, elsewhere: redis.Redis) -> None:
    before, ledger = filled(redis_client), Ledger(elsewhere)
    ledger.configure("default", {"max_running": 2})
    mine = add(ledger, "scheduled-1", payload='"mine"', delay_ms=LATER_MS)
    lines = lines_of(redis_client)
    assert restore(elsewhere, lines) == Restored(len(before) - 1, 1)
    assert every(elsewhere) == before | {("default", "-", "scheduled-1"): mine}
    assert ledger.settings_of(["default"])[0].max_running == 2
    assert restore(elsewhere, lines) == Restored(0, len(before))


def test_numbers_over_time_are_restored_once(redis_client: redis.Redis, elsewhere: redis.Redis) -> None:
    filled(redis_client)
    then, now = ledger_of(redis_client), ledger_of(elsewhere)
    then.history_of(then.shards())
    for shard in then.shards():  # a minute that is over
        redis_client.hset(keys_of("duecourse", shard).meta, "numbers", b"\x01\xc8\x00\x00\0" + b"\0\0\0\7")
    then.add([new("another", delay_ms=LATER_MS), new("another", queue="many", delay_ms=LATER_MS)])
    lines = lines_of(redis_client)
    for _ in range(2):
        restore(elsewhere, lines)
        assert now.history_of(sorted(now.shards())) == then.history_of(sorted(then.shards()))
    assert sum(line.by_place[0] for one in now.history_of(now.shards()) for line in one.lines["days"]) >= 7


def test_numbers_over_time_of_a_shard_that_is_not_there_are_left_out(
    redis_client: redis.Redis, elsewhere: redis.Redis
) -> None:
    filled(redis_client)
    Ledger(elsewhere).add([new("here", queue="many", delay_ms=LATER_MS)])
    restore(elsewhere, lines_of(redis_client))
    assert sorted(Ledger(elsewhere).shards()) == [Shard("default"), Shard("many")]


def test_a_task_that_was_running_runs_again(redis_client: redis.Redis, elsewhere: redis.Redis) -> None:
    ledger = ledger_of(redis_client)
    ledger.add([new("a"), new("b", payload=LARGE)])
    lost = claim(ledger)
    ledger.save(Shard(), lease_of(lost[1]), '{"page": 3}')
    ledger.add([new("c", kind="given")])
    handed = ledger.claim(Shard(), 9, lease_ms=LEASE_MS, deliveries={"given": Delivery("lambda:f", 10, LEASE_MS)}).tasks
    assert [task.target for task in handed] == ["lambda:f"]
    assert restore(elsewhere, lines_of(redis_client)).added == 3
    again = {task.id: task for task in claim(ledger_of(elsewhere))}
    assert set(again) == {"a", "b", "c"}
    assert again["b"].payload == json.loads(LARGE)
    assert again["b"].state == {"page": 3}
    assert settle(ledger_of(elsewhere), lost[0], Ending.DONE).name == "STALE"
    assert settle(ledger_of(elsewhere), again["a"], Ending.DONE).name == "DONE"
    redis_ledger.check(elsewhere, Shard())


def test_a_replacement_that_waits_for_a_running_task_is_what_comes_back(
    redis_client: redis.Redis, elsewhere: redis.Redis
) -> None:
    ledger = ledger_of(redis_client)
    ledger.add([new("a", payload="1")])
    claim(ledger)
    ledger.add([new("a", payload=LARGE, delay_ms=LATER_MS, on_duplicate=OnDuplicate.REPLACE)])
    assert restore(elsewhere, lines_of(redis_client)) == Restored(1, 0)
    [task] = every(elsewhere).values()
    assert (task.payload, task.status) == (json.loads(LARGE), Status.SCHEDULED)


def test_seals_stay_sealed_and_their_keys_come_along(redis_client: redis.Redis, elsewhere: redis.Redis) -> None:
    ledger = ledger_of(redis_client)
    ledger.add([new("a", delay_ms=LATER_MS)])
    ledger.seal_keys().put(WrappedKey("k1", b"\x00first"), "")
    ledger.seal_keys().put(WrappedKey("k2", b"second"), "k1")
    lines = lines_of(redis_client)
    with pytest.raises(InvalidInput, match="give --namespace duecourse"):
        restore(elsewhere, lines, "other")
    restore(elsewhere, lines)
    assert elsewhere.hgetall(seals_key("duecourse")) == {b"k1": b"\x00first", b"k2": b"second", b"current": b"k2"}


def test_files_of_schedules_are_known_there_too(redis_client: redis.Redis, elsewhere: redis.Redis) -> None:
    record, there = ledger_of(redis_client).schedule_files(), ledger_of(elsewhere).schedule_files()
    entries = {Entry("default", "-", "daily"), Entry("many", "acme", "hourly")}
    record.begin(3, "digest", entries)
    restore(elsewhere, lines_of(redis_client))
    assert there.read()._replace(begun_at=0) == FileState(3, digest="digest", entries=frozenset(entries))
    record.finish(3)
    restore(elsewhere, lines_of(redis_client))
    assert (there.read().applied, there.read().entries) == (3, entries)
    there.begin(4, "later", [])
    restore(elsewhere, lines_of(redis_client))
    assert (there.read().begun, there.read().digest) == (4, "later")


def test_a_key_that_seals_goes_on_to_seal(redis_client: redis.Redis, elsewhere: redis.Redis) -> None:
    ledger_of(redis_client).seal_keys().put(WrappedKey("k1", b"1"), "")
    ledger_of(elsewhere).seal_keys().put(WrappedKey("k9", b"9"), "")
    restore(elsewhere, lines_of(redis_client))
    assert elsewhere.hgetall(seals_key("duecourse")) == {b"k1": b"1", b"k9": b"9", b"current": b"k9"}


def test_a_file_that_was_cut_off_is_restored_only_if_asked(redis_client: redis.Redis, elsewhere: redis.Redis) -> None:
    before, lines, bad = filled(redis_client), lines_of(redis_client), list[str]()
    with pytest.raises(InvalidInput, match="was cut off after"):
        restore(elsewhere, lines[:-20])
    assert not elsewhere.keys("duecourse:*")
    assert Restore(elsewhere, "duecourse", 0, lambda _: None, bad.append).run(lines[:-20]).bad == len(bad) == 1
    added = len(every(elsewhere))
    assert 0 < added < len(before)
    assert restore(elsewhere, lines) == Restored(len(before) - added, added)
    assert every(elsewhere) == before


def test_one_queue_alone(redis_client: redis.Redis, elsewhere: redis.Redis) -> None:
    before = filled(redis_client)
    restore(elsewhere, lines_of(redis_client, "many"))
    assert every(elsewhere) == {place: task for place, task in before.items() if place[0] == "many"}


@pytest.mark.parametrize(
    ("number", "line", "problem"),
    [
        (1, "", "line 1: is not a line of an export"),
        (1, '{"end": {"tasks": 0}}', "line 1: must be the head of an export"),
        (2, "[1]", "line 2"),
        (
            2,
            '{"task": {"queue": "default", "id": "-/a", "when": 1, "record": "AAAA"}}',
            "line 2, task: .*cannot be read",
        ),
        (2, '{"queue": {"name": "a b", "shards": 1, "settings": {}}}', r"line 2, queue\.name"),
        (
            2,
            '{"queue": {"name": "a", "shards": 1, "settings": {"max_runing": 1}}}',
            r"line 2, queue\.settings\.max_runing",
        ),
        (2, "{}", "line 2: is not a line of an export"),
        (2, "[" * 100_000, "line 2: is not a line of an export"),
        (2, "[" * 20_000_000, "line 2: is longer than"),
        (2, '{"queue": {"name": "a", "shards": 1' + "0" * 5_000 + "}}", "line 2: is not a line of an export"),
        (2, '{"key": {"id": "current", "wrapped": "AAAA", "seals": true}}', r"line 2, key\.id"),
        (2, '{"key": {"id": "a b", "wrapped": "AAAA", "seals": true}}', r"line 2, key\.id"),
        (2, FILE.replace("1", str(2**63)), r"line 2, file\.number"),
        (2, FILE.replace("daily", "a/b"), r"line 2, file\.entries"),
        (2, '{"export": {"format": 1, "by": "x", "namespace": "a", "at": "x"}}', "line 2: must be the head"),
    ],
)
def test_a_wrong_line_is_named(redis_client: redis.Redis, number: int, line: str, problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem):
        restore(redis_client, [*[HEAD][: number - 1], line])
    assert not redis_client.keys("duecourse:*")


def of_task(line: str, **changes: Any) -> str:
    return json.dumps({"task": json.loads(line)["task"] | changes})


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        *(({"when": when}, r"task\.when") for when in (-1, 10**17, 2**63, 10**400, 1.5, True)),
        *(({"id": id}, r"task\.id") for id in ("noslash", "acme/x+", "a/b/c", "acme/x=1", "acme/x\n", "/x", "acme/")),
        ({"id": "*/acme/x"}, "task: .*cannot be read"),
        ({"queue": "a b"}, r"task\.queue"),
    ],
)
def test_a_bad_task_stops_the_import_before_anything_is_written(
    redis_client: redis.Redis, elsewhere: redis.Redis, changes: dict[str, Any], problem: str
) -> None:
    add(ledger_of(redis_client), "a", delay_ms=LATER_MS)
    head, *others, task, end = lines_of(redis_client)
    lines = [head, *others, task, of_task(task, **changes), end]
    with pytest.raises(InvalidInput, match=f"line {len(lines) - 1}, {problem}"):
        restore(elsewhere, lines)
    assert not elsewhere.keys("duecourse:*")


def test_a_record_with_an_instant_beyond_the_last_one_is_bad(redis_client: redis.Redis, elsewhere: redis.Redis) -> None:
    add(ledger_of(redis_client), "a", delay_ms=LATER_MS)
    head, *others, task, end = lines_of(redis_client)
    record = b64decode(json.loads(task)["task"]["record"])
    parts = list(RECORD.unpack_from(record))
    parts[7] = 2**16 - 1  # the high part of the due time
    late = RECORD.pack(*parts) + record[RECORD.size :]
    with pytest.raises(InvalidInput, match=r"task: .*due_at"):
        restore(elsewhere, [head, *others, of_task(task, record=b64encode(late).decode()), end])
    assert not elsewhere.keys("duecourse:*")


def test_a_file_that_lacks_a_task_in_its_middle_is_bad(redis_client: redis.Redis, elsewhere: redis.Redis) -> None:
    filled(redis_client)
    lines = lines_of(redis_client)
    del lines[-3]
    with pytest.raises(InvalidInput, match=f"line {len(lines)}: says that the export has"):
        restore(elsewhere, lines)
    with pytest.raises(InvalidInput, match=f"line {len(lines) + 1}: comes after the end"):
        restore(elsewhere, [*lines[:-1], json.dumps({"end": {"tasks": len(lines)}}), lines[-2]])


def test_skip_bad_restores_the_other_lines_and_names_the_bad_ones(
    redis_client: redis.Redis, other: RedisServer, elsewhere: redis.Redis, tmp_path: Path
) -> None:
    ledger = ledger_of(redis_client)
    for id in ("a", "b"):
        add(ledger, id, delay_ms=LATER_MS)
    head, *others, task, last, end = lines_of(redis_client)
    lines = [head, *others, task, of_task(task, when=2**63), "[" * 100_000, "\udcff\x1b[2J", last, end]
    path = tmp_path / "bad.jsonl"
    path.write_bytes("\n".join(lines).encode(errors="surrogateescape"))
    done = in_this_process("import", str(path), "--store", other.url)
    assert done.exit_code == 2
    assert f"line {len(lines) - 4}, task.when" in done.stderr
    assert f"line {len(lines) - 3}: is not a line of an export" in done.stderr
    assert "Nothing was written" in done.stderr
    assert "--skip-bad" in done.stderr
    assert not elsewhere.keys("duecourse:*")
    done = in_this_process("import", str(path), "--store", other.url, "--skip-bad")
    assert (done.exit_code, done.stdout) == (1, "2 tasks added, 0 were there already, 3 lines left out\n")
    assert len(done.stderr.splitlines()) == 3
    assert {id for _, _, id in every(elsewhere)} == {"a", "b"}


def test_an_export_names_the_queues_that_are_not_there(redis_client: redis.Redis) -> None:
    filled(redis_client)
    told: list[str] = []
    lines = [*Export(redis_client, "duecourse", ("default", "mnay", "xyz"), told.append).lines()]
    assert told == [f"nothing is exported of the unknown queue {one}" for one in ("mnay: many?", "xyz")]
    assert lines[1:] == lines_of(redis_client, "default")[1:]


def test_an_export_of_an_earlier_commit_is_imported_whole(redis_client: redis.Redis) -> None:
    lines = (EXPORTS / "9d900a4.jsonl").read_text().splitlines()
    exported = [task for line in lines if (task := json.loads(line).get("task"))]
    assert restore(redis_client, lines) == Restored(len(exported), 0)
    found = every(redis_client)
    tasks = [one for one in exported if "schedule" not in one["shown"]]
    assert {one["shown"]["state"] for one in tasks} == set(Status)
    for one in tasks:
        tenant, _, id = one["id"].partition("/")
        shown, task = one["shown"], found[one["queue"], tenant, id]
        if shown["state"] == Status.LEASED:
            assert task.status == Status.SCHEDULED
        else:
            now: dict[str, Any] = {**show_task(task)}
            assert {name: now[name] for name in shown} == shown
    ledger = ledger_of(redis_client)
    assert ledger.settings_of(["many"]) == [QueueSettings(paused=True, max_running=9, rate=Rate(30, 60_000))]
    assert ledger.seal_keys().current() == WrappedKey("k2", b"second")
    [daily] = ledger.schedules("default", "", 10).schedules
    assert (daily.schedule.id, daily.schedule.file) == ("daily", 1)


def test_tasks_of_an_earlier_commits_export_run_and_are_replayed(redis_client: redis.Redis) -> None:
    restore(redis_client, (EXPORTS / "9d900a4.jsonl").read_text().splitlines())
    ledger = ledger_of(redis_client)
    assert ledger.replay("default", ["dead-2"]) == [Reply.OK]
    claimed = {task.id: task for task in claim(ledger)}
    assert {"dead-2", "running", "succeeded"} <= set(claimed)
    assert (claimed["dead-2"].payload, claimed["running"].state) == (json.loads(LARGE), {"page": 3})
    assert {settle(ledger, task, Ending.DONE) for task in claimed.values()} == {Settled.DONE}
    redis_ledger.check(redis_client, Shard())


def test_schedules_of_a_release_without_auto_fire_as_they_did(redis_client: redis.Redis) -> None:
    restore(redis_client, (EXPORTS / "9d900a4-schedules.jsonl").read_text().splitlines())
    found = {
        one.schedule.id: one.schedule.rule for one in ledger_of(redis_client).schedules("default", "", 10).schedules
    }
    named = found.pop("named")
    assert (named.gap_used, named.fold_used) == (Gap.SKIP, Fold.SECOND)
    assert sorted(found) == ["counted", "elapsed", "hourly", "nightly"]
    assert {(rule.gap_used, rule.fold_used) for rule in found.values()} == {(Gap.SHIFT, Fold.FIRST)}


@pytest.mark.parametrize("version", [VERSION - 1, VERSION + 1])
def test_an_export_with_records_of_another_version_is_rejected_whole(
    redis_client: redis.Redis, elsewhere: redis.Redis, version: int
) -> None:
    add(ledger_of(redis_client), delay_ms=LATER_MS)
    head, queue, _, task, end = lines_of(redis_client)
    told = json.loads(task)
    record = b64decode(told["task"]["record"])
    told["task"]["record"] = b64encode(bytes([version]) + record[1:]).decode()
    with pytest.raises(InvalidInput, match=f"line 3.*has version {version}, and this release reads version {VERSION}"):
        restore(elsewhere, [head, queue, json.dumps(told), end])
    assert not elsewhere.keys("*")


def test_the_commands_take_a_ledger_from_redis_to_a_folder_and_back(
    redis_server: RedisServer, redis_client: redis.Redis, other: RedisServer, elsewhere: redis.Redis, tmp_path: Path
) -> None:
    before, folder = filled(redis_client), f"leveldb://{tmp_path / 'ledger'}"
    path = str(tmp_path / "out.jsonl")
    for source, target in ((redis_server.url, folder), (folder, other.url)):
        done = in_this_process("export", "--store", source, "-o", path)
        assert (done.exit_code, done.stderr) == (0, f"{len(before)} tasks\n")
        done = in_this_process("import", path, "--store", target)
        assert done.stdout == f"{len(before)} tasks added, 0 were there already\n", done.stderr
    assert every(elsewhere) == before
    assert ledger_of(elsewhere).settings_of(["many"]) == ledger_of(redis_client).settings_of(["many"])


STARTS = 4_076_204_400_000
HOUR, MINUTE = 3_600_000, 60_000
PEOPLE = tuple(Recipient(f"R{n}", Channel.EMAIL, f"r{n}@example.com") for n in range(5))
HOOKS = tuple(Recipient(f"H{n}", Channel.WEBHOOK, f"https://example.com/{n}?token=hidden-{n}") for n in range(5))
TEXT = "x" * 1_900
MEETINGS = [
    Reminder(
        "review", "Review", (HOUR, MINUTE), PEOPLE, TEXT + " {{ data.room }}", "", {"room": "4"}, starts_at=STARTS
    ),
    Reminder(
        "secret",
        "Review",
        (HOUR, MINUTE),
        HOOKS,
        TEXT + " {{ data.token }}",
        "",
        {"token": "hidden-9f2e"},
        starts_at=STARTS,
    ),
    Reminder("hooks", "Review", (HOUR, MINUTE), HOOKS, TEXT, "", {"room": "4"}, starts_at=STARTS),
    Reminder("small", "Review", (HOUR,), PEOPLE[:1], "Room {{ data.room }}", "", {"room": "4"}, starts_at=STARTS),
]


@pytest.fixture
def apart() -> list[str]:
    """Export by 9d900a4 of MEETINGS, of which three have their templates and data in tasks of their own."""
    return (EXPORTS / "9d900a4-contents.jsonl").read_text().splitlines()


@pytest.fixture
def seal_key(tmp_path: Path) -> str:
    """The key of the export with contents apart, as DUECOURSE_SEAL_KEY names it."""
    (tmp_path / "seal").write_bytes(bytes(range(32)))
    return f"file://{tmp_path / 'seal'}"


def test_contents_that_a_release_kept_apart_are_put_into_their_messages(
    redis_client: redis.Redis, seal_key: str, apart: list[str]
) -> None:
    restored = Restore(redis_client, "duecourse", 0, lambda _: None, seal_key=seal_key)
    assert restored.run(apart) == Restored(31, 0)
    assert restored.run(apart) == Restored(0, 31)
    ledger = ledger_of(redis_client)
    every(redis_client)  # whose keys agree
    assert not any(
        b"hidden" in value for value in redis_client.hgetall(keys_of("duecourse", Shard(QUEUE)).tasks).values()
    )
    with wired_with(Settings(), ledger=ledger, wrapping=LOCAL_KEY) as app:
        tasks = {task.id: task for name in MEETINGS for task in ledger.group(QUEUE, name.id)}
        assert {task.kind for task in tasks.values()} == {"reminder"}
        assert {id: str(task.status) for id, task in tasks.items() if task.status is not Status.SCHEDULED} == {
            "review:3600:0": "dead", "review:3600:1": "done", "secret:3600:0": "dead",
        }  # fmt: skip
        assert tasks["review:3600:0"].error == "no such address"
        for name in ("review", "secret"):
            app.tasks.replay(QUEUE, f"{name}:3600:0")
        assert [app.one_off_reminders.add(meeting).created for meeting in MEETINGS] == [False] * 4, (
            "each is as it was added"
        )
        assert {shown.text for shown in app.one_off_reminders.preview_standing("secret")} == {TEXT + " hidden-9f2e"}
        assert len(app.one_off_reminders.move("review", STARTS + HOUR).tasks) == 10
        every(redis_client)


def test_sealed_contents_that_were_kept_apart_need_the_key(redis_client: redis.Redis, apart: list[str]) -> None:
    with pytest.raises(InvalidInput, match=r"task secret:.*: has credentials .*: set DUECOURSE_SEAL_KEY") as found:
        restore(redis_client, apart)
    assert len(found.value.problems) == 2
    assert not redis_client.keys("duecourse:*")
    bad = list[str]()
    assert Restore(redis_client, "duecourse", 0, lambda _: None, bad.append).run(apart) == Restored(11, 0, 20)
    assert {one.group for one in every(redis_client).values()} == {"review", "small"}


def test_a_message_without_the_content_that_it_names_is_bad(
    redis_client: redis.Redis, seal_key: str, apart: list[str]
) -> None:
    lines = [line for line in apart if "review:content:" not in line]
    lines[-1] = json.dumps({"end": {"tasks": 33}})
    with pytest.raises(InvalidInput, match=r"task review:.*: names templates and data that the export lacks"):
        Restore(redis_client, "duecourse", 0, lambda _: None, seal_key=seal_key).run(lines)
    assert not redis_client.keys("duecourse:*")


def test_the_commands_write_a_file_of_ones_own_and_read_it(
    redis_server: RedisServer, redis_client: redis.Redis, other: RedisServer, elsewhere: redis.Redis, tmp_path: Path
) -> None:
    before = filled(redis_client)
    done = run("export", "--store", redis_server.url, "-o", str(tmp_path / "out.jsonl"))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", f"{len(before)} tasks\n")
    assert (tmp_path / "out.jsonl").stat().st_mode & 0o777 == 0o600
    done = run("import", str(tmp_path / "out.jsonl"), "--store", other.url)
    assert done.stdout == f"{len(before)} tasks added, 0 were there already\n", done.stderr
    assert every(elsewhere) == before
    shown = in_this_process("export", "--store", other.url).stdout.splitlines()
    assert [line for line in shown if '"task"' in line] != []
    assert json.loads(shown[-1]) == {"end": {"tasks": len(before)}}


def test_a_pipe_that_an_export_is_written_to_stays_one(redis_server: RedisServer, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE, text=True) as reader:
        done = run("export", "--store", redis_server.url, "-o", str(pipe))
        said, _ = reader.communicate(timeout=30)
    assert (done.returncode, json.loads(said.splitlines()[-1])) == (0, {"end": {"tasks": 0}})
    assert pipe.is_fifo()
    assert list(tmp_path.iterdir()) == [pipe]
