"""Credentials of tasks that come back by another way: cut in half, in an error of a function, in a library's log."""

import json
import logging
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duecourse import Retry, Task, task_handler
from duecourse.base.json_text import dump_json
from duecourse.base.masking import MASK, WORDS, masked, masked_text
from duecourse.calls.request_and_answer import excerpt
from duecourse.errors import InvalidInput, SealUnavailable
from duecourse.guard.call_credentials import mask_secrets
from duecourse.guard.egress import Egress
from duecourse.guard.http_client import GuardedHttpClient
from duecourse.guard.http_types import HttpAnswer, HttpRequest
from duecourse.guard.seals import DataKey, hidden_in, strip_secrets
from duecourse.ledger.embedded.ledger import EmbeddedLedger
from duecourse.ledger.operation_types import Lease
from duecourse.ledger.task import NewTask
from duecourse.running.leases import UNCLEARED
from duecourse.settings import Settings
from tests.support.engine import Lambda, ample
from tests.support.functions import Context
from tests.support.http_server import misbehaving
from tests.support.ledger import SHARD, stored_task
from tests.support.seals import LOCAL_KEY, seals_of
from tests.support.wired import Wire

SECRET = "hunter2-and-more"
LONG = "eyJ" + "".join(f"{n:03}" for n in range(200))
"""A token that no excerpt has room for."""


class Echo:
    """An HttpCaller whose answer quotes the token of its caller."""

    def call(self, request: HttpRequest) -> HttpAnswer:
        return HttpAnswer(403, {}, b"no user for " + request.headers["authorization"].removeprefix("Bearer ").encode())


def test_a_token_that_an_excerpt_cuts_is_no_part_of_an_error(ledger: EmbeddedLedger, wire: Wire) -> None:
    app = wire(Settings(), ledger=ledger, http=Echo())
    payload = {"url": "https://api.example.com/", "headers": {"Authorization": f"Bearer {LONG}"}}
    app.ledger.add(
        app.seals.sealed([NewTask("a", "poll", dump_json({**payload, "interval": "PT1S", "until": "done"}))])
    )
    assert app.drainer.drain([SHARD], ample).dead == 1
    error = stored_task(ledger).error
    assert error.endswith(f"answered 403: no user for {MASK}…")
    assert LONG[:6] not in error


@given(st.text("abc", min_size=6, max_size=20), st.integers(6, 20), st.text("abcx ", max_size=9))
def test_no_beginning_of_a_word_is_left_at_a_cut(word: str, size: int, before: str) -> None:
    cut = f"{before} {word[:size]}"
    assert strip_secrets(cut, [word]).endswith(MASK)
    assert strip_secrets(f"{cut}… (no JSON)", [word]).endswith(f"{MASK}… (no JSON)")


@task_handler
def failing(task: Task) -> Retry:
    """Quote the payload in an error, raised or returned."""
    if task.id == "a":
        raise LookupError(f"no user for {task.payload['password']}")
    return Retry(error=f"no user for {task.payload['password']}")


def test_an_error_of_a_function_has_no_credential_of_its_task(
    ledger: EmbeddedLedger, wire: Wire, caplog: pytest.LogCaptureFixture
) -> None:
    invoker = Lambda()
    app = wire(Settings(targets={"report": "lambda:Report"}), ledger=ledger, invoker=invoker)
    app.ledger.add(app.seals.sealed([NewTask(id, "report", dump_json({"password": SECRET})) for id in "ab"]))
    app.drainer.drain([SHARD], ample)
    for _, event in invoker.sent:
        failing(json.loads(json.dumps(event)), Context())
    raised, returned = (stored_task(ledger, id).error for id in "ab")
    assert re.fullmatch(rf"LookupError: no user for {MASK} at \S*test_attack_leaked_credentials\.py:\d+", raised)
    assert returned == f"no user for {MASK}"
    assert SECRET not in caplog.text


@pytest.mark.parametrize("level", [logging.WARNING, logging.DEBUG])
def test_no_library_logs_an_address_or_a_malformed_answer(level: int, caplog: pytest.LogCaptureFixture) -> None:
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nno header " + SECRET.encode() + b"\r\n\r\n{}"
    caplog.set_level(level)
    with misbehaving(lambda connection: connection.sendall(answer)) as url:
        request = HttpRequest("GET", f"{url}/?api_key={SECRET}", {}, None, 3_000, 1_000)
        out = GuardedHttpClient(1, Egress.of("127.0.0.1"))
        assert out.call(request).body == b"{}"
        out.close()
    assert SECRET not in caplog.text
    logging.getLogger("urllib3.connectionpool").warning("of another caller")
    assert "of another caller" in caplog.text


NAMES = st.lists(st.sampled_from(sorted(WORDS)) | st.text("password-_ 9.é", max_size=9), min_size=1, max_size=3)


@given(NAMES.map("_".join) | NAMES.map("".join), st.booleans())
def test_whatever_is_shown_masked_is_sealed(name: str, in_headers: bool) -> None:
    value: Any = {"headers": {name: SECRET}} if in_headers else {name: [SECRET]}
    found = hidden_in(dump_json(value), "report")
    assert (found.shown if found else value) == masked(value)


@pytest.mark.parametrize(
    "name", ["passphrase", "pass_word", "pass-code", "authtoken", "PGPASSWORD", "dbpassword", "x-passphrase", "pass"]
)
def test_a_password_by_any_of_its_names_is_sealed(name: str) -> None:
    found = hidden_in(dump_json({name: SECRET}), "report")
    assert found
    assert found.shown == {name: MASK}


@pytest.mark.parametrize(
    "text",
    [
        "https://h.example/x?$filter=Name%20eq%20'Ada'&sig={}",
        "https://h.example/x?a=<b>&key={}",
        "https://h.example/go/http://ada:{}@inside.example/",
        "grant_type=authorization_code&redirect_uri=https://app.example/cb&client_secret={}",
        "name=Ada Lovelace&password={}",
        "user%5Bname%5D=ada&user%5Bpassword%5D={}",
        "host=db user=ada password={}",
        "Server=db;User Id=sa;Password={};Encrypt=true",
        "DefaultEndpointsProtocol=https;AccountName=x;AccountKey={};EndpointSuffix=core",
        '<Login password="{}"/>',
        "<Login><wsse:Password Type='x'>{}</wsse:Password></Login>",
        '{{"token": {{"value": "{}"}}, "n": 1}}',
        '{{"tokens": ["{}"], "n": 1}}',
        "X-Forwarded: Bearer {}",
    ],
)
def test_a_credential_within_a_text_is_masked_and_so_it_is_sealed(text: str) -> None:
    given_text = text.format(SECRET)
    shown = masked_text(given_text)
    assert SECRET not in shown
    assert masked_text(shown) == shown
    found = hidden_in(dump_json({"body": given_text}), "report")
    assert found
    assert found.shown == {"body": shown}


@pytest.mark.parametrize(
    "headers",
    [[["Authorization", SECRET]], [{"name": "X-Api-Key", "value": SECRET}], [{"key": "Cookie", "value": SECRET}]],
)
def test_headers_as_a_list_are_headers(headers: Any) -> None:
    assert SECRET not in dump_json(masked({"headers": headers, "log": headers}))


@pytest.mark.parametrize(
    "value",
    [
        {"name": "Ada", "value": 7},
        {"pass": 3, "fail": 1},
        ["Ada", "Lovelace"],
        "a=b;c=d",
        "compass=north",
        "<p>word</p>",
    ],
)
def test_what_is_no_credential_is_shown(value: Any) -> None:
    assert masked(value) == value


@pytest.mark.parametrize(
    "text",
    ['"token":{' * 30_000, '"token":[' * 30_000, "token=" * 40_000, "a" * 250_000 + "=token", "a." * 120_000 + "=token",
     'token="' * 30_000, "<token" * 40_000, "<token a" + " " * 250_000, "<token>" * 30_000, "basic " * 40_000,
     "basic " + " " * 250_000, "bearer " + "a" * 250_000 + " ", "x://" + "y://@" * 50_000, "x://" + "@" * 250_000],
)  # fmt: skip
def test_no_text_takes_long_to_be_masked(text: str) -> None:
    began = time.thread_time()
    masked_text(text)
    assert time.thread_time() - began < 1


def test_no_error_takes_long_to_be_cleared_of_words() -> None:
    words = [f"secret-{n:06}" for n in range(30_000)]
    began = time.thread_time()
    strip_secrets("secret-" * 50 + "…", words)
    assert time.thread_time() - began < 1


def test_many_values_below_a_long_name_take_no_more_room_than_they_have() -> None:
    text = dump_json({"n" * 100_000: ["x://a@b"] * 10_000})
    found = hidden_in(text, "report")
    assert found
    assert len(dump_json(found.values)) < 2 * len(text)


def test_without_a_key_each_credential_is_named_in_short(ledger: EmbeddedLedger) -> None:
    with pytest.raises(InvalidInput) as raised:
        seals_of(ledger, None).check("payload", {"n" * 100_000: ["x://a@b"] * 10_000})
    assert sum(len(one.field) for one in raised.value.problems) < 30_000


class Slow:
    """A key that waits for as many as ask it at once, and does not answer."""

    def __init__(self, most: int) -> None:
        self.asked = 0
        self._others = threading.Barrier(most)

    def new(self) -> DataKey:
        return LOCAL_KEY.new()

    def unwrap(self, _wrapped: bytes) -> bytes:
        self.asked += 1
        with suppress(threading.BrokenBarrierError):
            self._others.wait(0.5)
        raise SealUnavailable("KMS is away")


def test_a_key_that_does_not_answer_is_asked_by_one_thread(ledger: EmbeddedLedger) -> None:
    seals_of(ledger).sealed([NewTask("a", "report", dump_json({"password": SECRET}))])
    slow = Slow(8)
    seals = seals_of(ledger, slow)

    def ask(_: int) -> str:
        with pytest.raises(SealUnavailable) as raised:
            seals.sealed([NewTask("b", "report", dump_json({"password": SECRET}))])
        return str(raised.value)

    with ThreadPoolExecutor(8) as threads:
        said = set(threads.map(ask, range(8)))
    assert said == {"KMS is away"}
    assert slow.asked < 8
    before = slow.asked
    ask(0)
    assert slow.asked == before + 1, "a later task asks again"


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-be"])
def test_an_answer_in_another_encoding_tells_no_credential_either(encoding: str) -> None:
    body = json.dumps({"echo": SECRET, "é": 1}, ensure_ascii=False).encode(encoding)
    assert json.loads(mask_secrets(body, [SECRET])) == {"echo": MASK, "é": 1}
    assert SECRET not in excerpt(mask_secrets(SECRET.encode(encoding) * 2, [SECRET]))


@pytest.mark.parametrize(
    "text",
    [" null", " []", " {", ' {"seal": [1], "shown": {}}', ' {"seal": "a.b"}', ' {"shown": {}}', " " + "[" * 100_000],
    ids=lambda text: text[:20],
)
def test_a_seal_that_somebody_damaged_ends_its_task_alone(ledger: EmbeddedLedger, wire: Wire, text: str) -> None:
    app = wire(Settings(), ledger=ledger, kinds={"poll": lambda _: None})
    ledger.add([NewTask("a", "poll", text), NewTask("b", "poll")])
    drained = app.drainer.drain([SHARD], ample)
    assert (drained.dead, drained.done) == (1, 1)
    assert "sealed credentials" in stored_task(ledger).error


@pytest.mark.parametrize("away", [False, True])
def test_an_error_of_a_worker_outside_has_no_credential_of_its_task(
    ledger: EmbeddedLedger, wire: Wire, away: bool
) -> None:
    app = wire(Settings(), ledger=ledger)
    app.ledger.add(app.seals.sealed([NewTask("a", "poll", dump_json({"password": SECRET}))]))
    app = wire(Settings(), ledger=ledger, **({"wrapping": Slow(1)} if away else {}))
    [task] = ledger.claim(SHARD, 1, lease_ms=1_000).tasks
    app.leases.settle("default", Lease.of(task), Retry(error=f"no user for {SECRET}"))
    assert stored_task(ledger).error == (UNCLEARED if away else f"no user for {MASK}")
