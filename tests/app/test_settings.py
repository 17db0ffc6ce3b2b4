"""Settings: what the environment may say, and that every wrong variable is named at once."""

from pathlib import Path

import pytest

from duecourse.errors import InvalidSettings
from duecourse.settings import Settings, parse, variables
from duecourse_local.harness.addresses import without_password
from duecourse_local.harness.state import SEAL_KEY, seal_key
from duecourse_local.reference import settings as settings_page


def wrong(**variables: str) -> dict[str, str]:
    with pytest.raises(InvalidSettings) as caught:
        parse({f"DUECOURSE_{name}": value for name, value in variables.items()})
    return {problem.field: problem.problem for problem in caught.value.problems}


def test_nothing_needs_to_be_set() -> None:
    assert parse({}) == Settings()
    assert parse({"PATH": "/bin", "DUECOURSE_NAMESPACE": ""}) == Settings(), "an empty variable is an unset one"


def test_durations_are_seconds_or_iso_8601_and_kept_as_milliseconds() -> None:
    given = parse({"DUECOURSE_LEASE": "90", "DUECOURSE_MARGIN": "PT2.5S", "DUECOURSE_RETENTION": "P7D"})
    assert (given.lease_ms, given.margin_ms, given.retention_ms) == (90_000, 2_500, 604_800_000)


def test_targets_are_json() -> None:
    given = parse({"DUECOURSE_TARGETS": '{"report": "lambda:ReportFunction:live", "poll": "inline"}'})
    assert given.targets == {"report": "lambda:ReportFunction:live", "poll": "inline"}


def test_a_task_can_be_handed_to_a_queue_by_its_name_or_url() -> None:
    targets = (
        '{"a": "sqs:bills", "b": "sqs:bills.fifo", "c": "sqs:https://sqs.eu-west-1.amazonaws.com/1/q", "d": "amqp:a b"}'
    )
    with pytest.raises(InvalidSettings, match=r"DUECOURSE_TARGETS\.d"):
        parse({"DUECOURSE_TARGETS": targets})
    given = parse({"DUECOURSE_TARGETS": targets.replace("a b", "a.b"), "DUECOURSE_AMQP": "amqps://u:p@h:5671/v"})
    assert (given.targets["c"], given.targets["d"]) == ("sqs:https://sqs.eu-west-1.amazonaws.com/1/q", "amqp:a.b")


def test_a_target_by_amqp_wants_a_brokers_address() -> None:
    assert list(wrong(TARGETS='{"bill": "amqp:bills"}')) == ["DUECOURSE_AMQP"]
    assert parse({"DUECOURSE_TARGETS": '{"bill": "amqp:bills"}', "DUECOURSE_AMQP_SECRET": "broker"}).amqp_secret


def test_a_secret_takes_the_place_of_its_value() -> None:
    both = wrong(STORE="redis://h", STORE_SECRET="a/b", AMQP="amqp://h", AMQP_SECRET="c")
    assert both == {
        "DUECOURSE_STORE_SECRET": "takes the place of DUECOURSE_STORE: leave one of them out",
        "DUECOURSE_AMQP_SECRET": "takes the place of DUECOURSE_AMQP: leave one of them out",
    }
    assert parse({"DUECOURSE_STORE": "", "DUECOURSE_STORE_SECRET": "a/b"}).store_secret == "a/b"


def test_a_secret_is_named_and_not_given() -> None:
    arn = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:duecourse/redis-url-AbCdEf"
    assert parse({"DUECOURSE_STORE_SECRET": arn}).store_secret == arn
    problem = wrong(STORE_SECRET="redis://user:hunter2@host", AMQP_SECRET="a b")
    assert problem.keys() == {"DUECOURSE_STORE_SECRET", "DUECOURSE_AMQP_SECRET"}
    assert all("must be the name or ARN of a secret, and not its value" in text for text in problem.values())
    assert "hunter2" not in str(problem)


@pytest.mark.parametrize(
    "store",
    [
        "redis://h:6379/0",
        "rediss://user:pw@h:6380/1",
        "memory://",
        "leveldb:///var/lib/d",
        "unix:///run/redis.sock?db=1",
        "redis-cluster://h:7000,[::1]:7001,k",
        "rediss-cluster://:pw@h/0",
        "redis+sentinel://user:pw@a:26379,b:26379/main/2",
        "redis+sentinel://a/main",
        "redis://:p%2Fss@h",
        "rediss://h/1?ssl_ca_certs=/etc/ca.pem&ssl_cert_reqs=required",
        "redis://[::1]:6379",
        "redis-cluster://[::1]:7000,[::1]:7001",
        "leveldb:///var/my ledger?",
    ],
)
def test_the_stores_that_there_are(store: str) -> None:
    assert parse({"DUECOURSE_STORE": store}).store == store


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("STORE", "postgres://h"),
        ("STORE", "127.0.0.1:6379"),
        ("STORE", "leveldb://folder"),
        ("NAMESPACE", "a b"),
        ("NAMESPACE", "{tag}"),
        ("PARALLEL", "0"),
        ("PARALLEL", "many"),
        ("QUERY_PARALLEL", "0"),
        ("SHARDS", '{"query:api.example.com": 5}'),
        ("LEASE", "0.5"),
        ("LEASE", "soon"),
        ("LEASE", "-1"),
        ("TARGETS", "report=lambda:X"),
        ("TARGETS", "[]"),
        ("TARGETS", '{"report": "inline"}'),
        ("AMQP", "http://h"),
        ("AMQP", "amqp://h:99999"),
        ("AMQP", "amqp://user@h"),
        ("AMQP", "amqp://"),
        ("AMQP", "amqp:///vhost"),
        ("AMQP", "amqp://user:pass/word@h"),
        ("AMQP", "amqp://user:pass[word]@h"),
        ("WAIT", "-1"),
        ("BRIDGE_IN_FLIGHT", "0"),
        ("EVENTS", "no"),
        ("TICK_LINGER", "a minute"),
        ("TICK_LINGER", "-1"),
        ("SMS_FROM", "0664"),
        ("SMS_FROM", "a name"),
        ("SMS_FROM", "OverElevenOnes"),
        ("LEASE_MS", "1000"),
        ("TYPO", "1"),
    ],
)
def test_a_wrong_variable_is_named(name: str, value: str) -> None:
    assert list(wrong(**{name: value})) == [f"DUECOURSE_{name}"]


@pytest.mark.parametrize(
    "target", ["lambda:", "sqs:", "sqs:a/b", "sqs:q.fifo.fifo", "amqp:", "sns:topic", "ReportFunction", "lambda:a b"]
)
def test_a_wrong_target_is_named_by_its_kind(target: str) -> None:
    assert list(wrong(TARGETS=f'{{"report": "{target}"}}')) == ["DUECOURSE_TARGETS.report"]


def test_a_kind_that_no_task_can_have_is_named() -> None:
    assert list(wrong(TARGETS='{"my report": "lambda:X"}')) == ["DUECOURSE_TARGETS.my report"]


def test_shards_are_json() -> None:
    assert parse({"DUECOURSE_SHARDS": '{"default": 8, "bills": 256}'}).shards == {"default": 8, "bills": 256}


@pytest.mark.parametrize("count", ["0", "-1", "257", '"many"', "1.5"])
def test_a_wrong_count_of_shards_is_named_by_its_queue(count: str) -> None:
    assert list(wrong(SHARDS=f'{{"default": {count}}}')) == ["DUECOURSE_SHARDS.default"]


@pytest.mark.parametrize("shards", ["8", "default=8", "[8]"])
def test_shards_that_are_not_by_queue_are_refused(shards: str) -> None:
    assert list(wrong(SHARDS=shards)) == ["DUECOURSE_SHARDS"]


@pytest.mark.parametrize(
    ("store", "told"),
    [
        ("redis-cluster://a:7000,b:port", "a port of at most"),
        ("redis-cluster://a:7000/3", "one database"),
        ("redis-cluster://", "<host>"),
        ("redis+sentinel://a:26379", "<service>"),
        ("redis+sentinel://a:26379/main/x", "<service>"),
        ("redis+sentinel:///main", "<host>"),
        ("redis-cluster://a:7000,", "<host>"),
        ("postgres://h", "must begin with redis://, rediss://, unix://"),
        ("REDIS://h", "must begin with redis://"),
        ("redis://h/main", "[/<db>]"),
        ("redis://h/1/2", "[/<db>]"),
        ("redis:// h", "<host>"),
        ("redis://", "<host>"),
        ("redis://:p/ss@h", "in a password / is %2F"),
        ("redis://ada:p#ss@h", "in a password / is %2F"),
        ("redis://h?decode_responses=true", "known options: db"),
        ("redis://h?db=x", "known options: db"),
        ("redis://h?ssl_cert_reqs=none", "known options: db"),
        ("rediss://h?ssl_cert_reqs=maybe", "ssl_cert_reqs"),
        ("redis+sentinel://a/main?password=x", "known options: none"),
        ("unix://", "/<path>"),
        ("memory://a", "must be memory://"),
        ("redis://[gg]/0", "IPv6 address in brackets"),
        ("redis-cluster://a,[::1]:x", "a port of at most"),
        ("redis-cluster://[127.0.0.1]:7000", "IPv6 address in brackets"),
        ("redis://ada:p[s]s@h", "[ is %5B, ] is %5D"),
        ("redis://ada:p\u2100s@h", "written with escapes"),
    ],
)
def test_a_store_that_is_written_wrongly_is_told_how(store: str, told: str) -> None:
    assert told in wrong(STORE=store)["DUECOURSE_STORE"]


def test_all_that_is_wrong_is_told_at_once() -> None:
    problems = wrong(STORE="x", PARALLEL="x", TYPO="x", LEASE="x")
    assert set(problems) == {f"DUECOURSE_{name}" for name in ("STORE", "PARALLEL", "TYPO", "LEASE")}
    assert "Value error" not in str(problems)


@pytest.mark.parametrize(
    "store",
    [
        "postgres://user:hunter2@h",
        "redis://user:hunter2@h:x",
        "redis://:hunter2/x@h",
        "redis://user:hunter2@h/0?password=hunter2",
        "redis-cluster://user:hunter2@h/3",
        "redis+sentinel://user:hunter2@h",
        "redis://user\u2100:hunter2@h",
        "redis://[user:hunter2@h",
    ],
)
def test_a_password_is_not_told(store: str) -> None:
    assert "hunter2" not in str(wrong(STORE=store))


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("redis://ada:hunter2@h:6379/0", "redis://ada:***@h:6379/0"),
        ("redis-cluster://:p@ss@a:1,b:2", "redis-cluster://:***@a:1,b:2"),
        ("unix://:x@/run/redis.sock?db=1", "unix://:***@/run/redis.sock?db=1"),
        ("redis://ada@h", "redis://ada@h"),
        ("unix:///run/redis.sock", "unix:///run/redis.sock"),
        ("memory://", "memory://"),
    ],
)
def test_a_stores_address_is_shown_without_its_password(url: str, told: str) -> None:
    assert without_password(url) == told


@pytest.mark.parametrize(
    ("name", "value", "twice"),
    [
        ("TARGETS", '{"report": "lambda:A", "report": "lambda:B"}', ["report"]),
        ("SHARDS", '{"default": 8, "bills": 2, "default": 4}', ["default"]),
        ("WATCH", '[{"pattern": "a-{x}", "kind": "report", "payload": {"n": {"a": 1, "a": 2}}}]', ["0.payload.n.a"]),
        ("WATCH", '[{"pattern": "a", "kind": "b", "kind": "c", "pattern": "d"}]', ["0.pattern", "0.kind"]),
    ],
)
def test_a_name_that_stands_twice_is_refused_by_its_variable_and_itself(
    name: str, value: str, twice: list[str]
) -> None:
    assert wrong(**{name: value}) == dict.fromkeys(
        (f"DUECOURSE_{name}.{field}" for field in twice), "stands twice in its object"
    )


def test_a_setting_that_nests_too_deep_is_told_what_it_should_be() -> None:
    assert "must be JSON such as" in wrong(TARGETS="[" * 100_000)["DUECOURSE_TARGETS"]


def test_a_namespace_is_told_what_it_may_be() -> None:
    assert wrong(NAMESPACE="a:b") == {"DUECOURSE_NAMESPACE": "must be 1 to 64 characters of A-Z a-z 0-9 . _ -"}


def test_every_setting_says_what_it_is_for() -> None:
    assert [one.name for one in variables() if not one.description] == []


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("STORE", "postgres://h", "must begin with redis://, rediss://"),
        ("LEASE", "0.5", "must be at least PT1S"),
        ("HTTP_TIMEOUT", "0", "must be at least PT0.001S"),
    ],
)
def test_what_is_wrong_is_told_in_the_words_of_the_setting(name: str, value: str, told: str) -> None:
    assert told in wrong(**{name: value})[f"DUECOURSE_{name}"]


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("PARALLEL", "many", "must be a valid integer, unable to parse string as an integer"),
        ("PARALLEL", "5.", "must be a valid integer, unable to parse string as an integer"),
        ("PARALLEL", "5.5", "must be a valid integer, unable to parse string as an integer"),
        ("PARALLEL", "0", "must be greater than or equal to 1"),
        ("PARALLEL", "257", "must be less than or equal to 256"),
        ("EVENTS", "no", "must be 'on' or 'off'"),
        ("TENANT_HEADER", "x y", "must be 1 to 64 characters of A-Z a-z 0-9 -"),
        ("TARGETS", "[]", "must be a JSON object"),
        ("WATCH", "{}", "must be a valid list"),
        ("TYPO", "1", "is not a known field"),
    ],
)
def test_a_wrong_value_is_told_what_it_must_be(name: str, value: str, told: str) -> None:
    assert wrong(**{name: value}) == {f"DUECOURSE_{name}": told}


@pytest.mark.parametrize(
    ("count", "told"),
    [
        ("1.5", "must be a valid integer, got a number with a fractional part"),
        ("NaN", "must be a finite number"),
        ("1e400", "must be a finite number"),
        ("null", "must be a valid integer"),
        ("true", "must be a valid integer"),
    ],
)
def test_a_count_of_shards_is_a_whole_number(count: str, told: str) -> None:
    assert wrong(SHARDS=f'{{"default": {count}}}') == {"DUECOURSE_SHARDS.default": told}


@pytest.mark.parametrize("value", [" 7 ", "+7", "7.0", "0_7"])
def test_a_number_may_be_written_in_several_ways(value: str) -> None:
    assert parse({"DUECOURSE_PARALLEL": value}).parallel == 7


def test_settings_that_contradict_each_other_are_named_all_at_once() -> None:
    watch = '[{"pattern": "a", "kind": "r", "window": "PT2H"}, {"pattern": "a", "kind": "r"}]'
    assert wrong(WATCH=watch, RETENTION="PT1H", WARM="PT5M", DEAD_TARGET="amqp:dead").keys() == {
        "DUECOURSE_AMQP",
        "DUECOURSE_WARM",
        "DUECOURSE_WATCH.0.window",
        "DUECOURSE_WATCH.1.pattern",
    }


def test_a_target_that_is_no_text_is_named_by_its_kind() -> None:
    assert list(wrong(TARGETS='{"report": 7}')) == ["DUECOURSE_TARGETS.report"]


@pytest.mark.parametrize("port", ["x", "99999", "-1", "0"])
def test_a_store_whose_port_is_none_is_refused(port: str) -> None:
    assert set(wrong(STORE=f"redis://localhost:{port}/0")) == {"DUECOURSE_STORE"}


@pytest.mark.parametrize("target", ["sqs:polls", "sqs:polls.fifo", "sqs:https://sqs.eu-west-1/1/q", "amqp:polls"])
def test_a_poll_is_no_brokers_for_a_query_would_count_as_answered_once_it_was_handed_over(target: str) -> None:
    told = wrong(TARGETS=f'{{"bill": "sqs:bills", "poll": "{target}"}}', AMQP="amqp://h")
    assert list(told) == ["DUECOURSE_TARGETS.poll"]
    assert "must be inline or lambda:<function>" in told["DUECOURSE_TARGETS.poll"]
    assert parse({"DUECOURSE_TARGETS": '{"poll": "lambda:Poll"}'}).targets == {"poll": "lambda:Poll"}


def test_a_dead_target_is_as_any_target_but_inline() -> None:
    assert parse({"DUECOURSE_DEAD_TARGET": "lambda:Alert"}).dead_target == "lambda:Alert"
    assert parse({}).dead_target == ""
    assert list(wrong(DEAD_TARGET="inline")) == list(wrong(DEAD_TARGET="Alert")) == ["DUECOURSE_DEAD_TARGET"]
    assert wrong(DEAD_TARGET="amqp:dead") == {
        "DUECOURSE_AMQP": "is required because DUECOURSE_DEAD_TARGET names an amqp:<queue>"
    }


def test_what_tells_of_tasks_has_names_of_its_own() -> None:
    assert list(wrong(TARGETS='{"task.dead": "lambda:Alert"}')) == ["DUECOURSE_TARGETS"]


def test_a_queue_of_queries_may_have_a_shard_for_each_call_at_a_time() -> None:
    given = {"DUECOURSE_SHARDS": '{"query:api.example.com": 5, "default": 64}', "DUECOURSE_QUERY_PARALLEL": "5"}
    assert parse(given).query_parallel == 5


def test_the_page_of_settings_is_up_to_date() -> None:
    assert settings_page.PAGE.read_text() == settings_page.page(), "run: make reference"
    assert [one.name for one in variables() if f"| `{one.name}` |" not in settings_page.page()] == []


def test_warming_is_ten_seconds_ahead_and_off_by_an_empty_value() -> None:
    assert (parse({}).warm_ms, parse({}).warm_idle_ms) == (10_000, 300_000)
    assert parse({"DUECOURSE_WARM": ""}).warm_ms == 0
    assert parse({"DUECOURSE_WARM": "PT30S", "DUECOURSE_WARM_IDLE": ""}).warm_ms == 30_000


def test_warming_is_shorter_ahead_than_a_spell_is_long() -> None:
    with pytest.raises(InvalidSettings) as caught:
        parse({"DUECOURSE_WARM": "PT5M"})
    assert [problem.field for problem in caught.value.problems] == ["DUECOURSE_WARM"]


@pytest.mark.parametrize("name", ["my tasks", " ", "täsks", "a\nb", "%20 {x}"])
def test_a_stack_finds_its_sealing_key_in_a_folder_of_any_name(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    folder.mkdir()
    (folder / SEAL_KEY).write_bytes(bytes(32))
    key = parse({"DUECOURSE_SEAL_KEY": seal_key(folder)}).seal_key
    assert Path(key.removeprefix("file://")) == folder / SEAL_KEY
