"""`python -m duecourse.bridge` as its users start it: settings, the ready line, the Invoke API, signals."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tests.support.bridges import bell_setter
from tests.support.http_server import Reply, answering
from tests.support.redis_server import FLOOR, RedisServer, need
from tests.support.wait import until

pytestmark = pytest.mark.slow

ENVIRONMENT = {
    **{name: value for name, value in os.environ.items() if not name.startswith(("DUECOURSE_", "AWS_"))},
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_DEFAULT_REGION": "eu-central-1",
    "PYTHONPATH": "layers/core",
}


class LambdaService(ThreadingHTTPServer):
    """Takes invocations as Lambda's Invoke API does."""

    daemon_threads = True

    def __init__(self) -> None:
        self.invoked: list[tuple[str, Any]] = []
        self.hold = threading.Event()
        self.hold.set()
        super().__init__(("127.0.0.1", 0), _Invoke)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Invoke(BaseHTTPRequestHandler):
    server: LambdaService
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        event = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.invoked.append((self.path, event))
        self.server.hold.wait(60)
        body = b'{"claimed": 0, "backlog": 0}'
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def service() -> Iterator[LambdaService]:
    with LambdaService() as service:
        thread = threading.Thread(target=service.serve_forever, args=(0.02,))
        thread.start()
        yield service
        service.hold.set()
        service.shutdown()
        thread.join()


@pytest.fixture
def server() -> Iterator[RedisServer]:
    with RedisServer(need(FLOOR)) as server:
        yield server


def start(**environment: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-W", "error", "-m", "duecourse.bridge"]
    given = {name: value for name, value in (ENVIRONMENT | environment).items() if value}
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=given, stdout=pipe, stderr=pipe, text=True)


@pytest.fixture
def bridge(server: RedisServer, service: LambdaService) -> Iterator[subprocess.Popen[str]]:
    with start(
        DUECOURSE_STORE=server.url,
        DUECOURSE_NAMESPACE="test",
        DUECOURSE_ON_EXPIRED_FUNCTION="Expired",
        AWS_ENDPOINT_URL_LAMBDA=service.url,
    ) as process:
        yield process
        process.kill()


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_it_says_that_it_is_ready_and_stops_cleanly(bridge: subprocess.Popen[str], how: signal.Signals) -> None:
    assert bridge.stdout
    assert bridge.stdout.readline().startswith("bridge ready: 0 shards at unix://")
    bridge.send_signal(how)
    out, err = bridge.communicate(timeout=30)
    assert bridge.returncode == 0
    assert [json.loads(line)["Rings"] for line in out.splitlines()] == [0], "its last figures"
    assert "Traceback" not in err


@pytest.fixture
def invoking(bridge: subprocess.Popen[str], server: RedisServer, service: LambdaService) -> subprocess.Popen[str]:
    """The bridge with an invocation under way, which the service holds."""
    assert bridge.stdout
    bridge.stdout.readline()
    service.hold.clear()
    with bell_setter(server) as bells:
        bells.hang("test:{default/0}:bell", 20)
        until(lambda: service.invoked)
    return bridge


def test_it_invokes_the_function_that_is_set_and_finishes_what_is_under_way(
    invoking: subprocess.Popen[str], service: LambdaService
) -> None:
    invoking.send_signal(signal.SIGTERM)
    service.hold.set()
    out, err = invoking.communicate(timeout=30)
    assert invoking.returncode == 0, err
    told = json.loads(out)
    assert (told["Rings"], told["Invocations"], told["Refused"], told["service"]) == (1, 1, 0, "duecourse")
    ((path, event),) = service.invoked
    assert path == "/2015-03-31/functions/Expired/invocations"
    assert [ring["key"] for ring in event["rings"]] == ["test:{default/0}:bell"]


def test_a_second_signal_does_not_cut_its_stop_short(
    invoking: subprocess.Popen[str], server: RedisServer, service: LambdaService
) -> None:
    with bell_setter(server) as bells:
        invoking.terminate()
        until(lambda: not bells.redis.client_list(_type="pubsub"))
        for how in (signal.SIGINT, signal.SIGTERM):
            invoking.send_signal(how)
    service.hold.set()
    out, err = invoking.communicate(timeout=30)
    assert (invoking.returncode, json.loads(out)["Invocations"]) == (0, 1)
    assert "Traceback" not in err


def test_an_invocation_that_never_answers_is_given_up_after_a_lease_and_begun_anew(
    server: RedisServer, service: LambdaService
) -> None:
    given = {"DUECOURSE_STORE": server.url, "DUECOURSE_NAMESPACE": "test", "AWS_ENDPOINT_URL_LAMBDA": service.url}
    with start(**given, DUECOURSE_LEASE="PT1S") as process, bell_setter(server) as bells:
        assert process.stdout
        process.stdout.readline()
        service.hold.clear()
        bells.hang("test:{default/0}:bell", 20)
        until(lambda: len(service.invoked) == 1)
        until(lambda: len(service.invoked) > 1)
        process.terminate()
        service.hold.set()
        _, err = process.communicate(timeout=30)
    assert "timed out" in err.lower() or "timeout" in err.lower()


def test_its_log_has_one_line_an_event_with_time_and_level(bridge: subprocess.Popen[str]) -> None:
    assert bridge.stdout
    bridge.stdout.readline()
    bridge.terminate()
    _, err = bridge.communicate(timeout=30)
    for line in err.splitlines():
        time, level, _ = line.split(" ", 2)
        assert time.endswith("Z")
        assert len(time) == len("2026-01-01T00:00:00.000Z")
        assert level in {"INFO", "WARNING", "ERROR"}


@pytest.mark.parametrize(
    ("environment", "named"),
    [
        ({"DUECOURSE_BRIDGE_IN_FLIGHT": "many"}, "DUECOURSE_BRIDGE_IN_FLIGHT"),
        ({"DUECOURSE_STORE": "memory://"}, "DUECOURSE_STORE"),
        ({"AWS_DEFAULT_REGION": "", "AWS_CONFIG_FILE": "/dev/null"}, "AWS_DEFAULT_REGION"),
        (
            {"AWS_DEFAULT_REGION": "", "AWS_CONFIG_FILE": "/dev/null", "DUECOURSE_STORE_SECRET": "a"},
            "AWS_DEFAULT_REGION",
        ),
        ({"DUECOURSE_STORE_SECRET": "a", "DUECOURSE_STORE": "redis://h"}, "DUECOURSE_STORE_SECRET"),
    ],
)
def test_wrong_settings_are_named(environment: dict[str, str], named: str) -> None:
    with start(**environment) as process:
        _, err = process.communicate(timeout=30)
    assert process.returncode == 2
    assert named in err
    assert "Traceback" not in err


def test_a_secret_that_does_not_exist_is_a_wrong_setting() -> None:
    refusal = Reply(400, b'{"__type": "ResourceNotFoundException"}', {"Content-Type": "application/x-amz-json-1.1"})
    with (
        answering(lambda _asked: refusal) as manager,
        start(DUECOURSE_STORE_SECRET="a/b", AWS_ENDPOINT_URL_SECRETS_MANAGER=manager.url) as process,
    ):
        _, err = process.communicate(timeout=30)
    assert process.returncode == 2
    assert "DUECOURSE_STORE_SECRET: names a secret that does not exist" in err
    assert "Traceback" not in err


def test_a_bridge_whose_secret_cannot_be_read_now_ends_to_be_started_again() -> None:
    """Status 2 would keep systemd from starting it again."""
    with start(DUECOURSE_STORE_SECRET="a/b", AWS_ENDPOINT_URL_SECRETS_MANAGER="http://127.0.0.1:1") as process:
        _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "the secret that DUECOURSE_STORE_SECRET names cannot be read" in err
    assert "Traceback" not in err


def test_a_store_that_is_away_is_told_and_waited_for(service: LambdaService) -> None:
    with start(DUECOURSE_STORE="redis://:secret@127.0.0.1:1/0", AWS_ENDPOINT_URL_LAMBDA=service.url) as process:
        assert process.stderr
        line = process.stderr.readline()
        process.terminate()
        out, _ = process.communicate(timeout=30)
    assert "LOST the store" in line
    assert "secret" not in line
    assert process.returncode == 0
    assert "ready" not in out


def test_with_events_off_it_says_so_and_is_quiet_where_there_is_no_config(service: LambdaService) -> None:
    with RedisServer(need(FLOOR), "--rename-command", "CONFIG", "") as server:
        given = {"DUECOURSE_STORE": server.url, "DUECOURSE_EVENTS": "off", "AWS_ENDPOINT_URL_LAMBDA": service.url}
        with start(**given) as process:
            assert process.stdout
            line = process.stdout.readline()
            process.terminate()
            _, err = process.communicate(timeout=30)
    assert ", events off, " in line
    assert not {"WARNING", "ERROR"} & {word for line in err.splitlines() for word in line.split()}


def test_its_help_has_examples() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "duecourse.bridge", "--help"],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "examples:" in done.stdout
    assert "DUECOURSE_STORE" in done.stdout
