"""Handing tasks to a real RabbitMQ: what is confirmed is there, what is not is said so."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE
from urllib.parse import quote

import pika
import psutil
import pytest

from duecourse.errors import PublishRejected
from duecourse.ledger.embedded.ledger import EmbeddedLedger
from duecourse.ledger.task import Done, Status
from duecourse.running.drain import Drainer, Limits
from duecourse.running.task_event import BrokerMessage
from duecourse.services import rabbitmq as amqp_publisher
from duecourse.services.rabbitmq import AmqpPublisher
from duecourse_local.harness.rabbitmq_server import RabbitMq, executable
from tests.support.clock import HandClock
from tests.support.commands import gone
from tests.support.engine import MARGIN_MS, Lambda, ample, engine, fire_nothing, targets_of
from tests.support.http_server import misbehaving
from tests.support.ledger import SHARD, new, stored_task
from tests.support.matrix import MATRIX
from tests.support.project import ROOT
from tests.support.proxies import DeafProxy
from tests.support.rabbitmq import Rabbit, need, need_server, rabbit
from tests.support.tls import certificate, tls_front
from tests.support.wait import until

pytestmark = pytest.mark.slow


@pytest.fixture
def broker() -> Iterator[Rabbit]:
    with rabbit(need()) as client:
        yield client


@pytest.fixture
def publisher() -> Iterator[AmqpPublisher]:
    made = AmqpPublisher(need())
    yield made
    made.close()


CONSUMER = """
import sys, time
from tests.support.rabbitmq import Rabbit
print(Rabbit(sys.argv[1]).got(sys.argv[2], ack=False).id, flush=True)
time.sleep(60)
"""
PUBLISHER = """
import sys
from duecourse.services.rabbitmq import AmqpPublisher
from duecourse.running.task_event import BrokerMessage
publisher = AmqpPublisher(sys.argv[1])
for line in sys.stdin:
    print(publisher.publish(sys.argv[2], [BrokerMessage(line.strip(), "{}")]), flush=True)
"""


class Child:
    """A process of its own that runs a piece of Python."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def readline(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def ask(self, line: str) -> str:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        return self.readline().strip()

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


@contextmanager
def child(code: str, *arguments: str) -> Iterator[Child]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (ROOT, ROOT / "layers/core")))}
    command = [sys.executable, "-c", code, *arguments]
    with subprocess.Popen(command, env=environment, text=True, stdin=PIPE, stdout=PIPE) as process:
        started = Child(process)
        try:
            yield started
        finally:
            started.kill()


def messages(count: int, name: str = "m") -> list[BrokerMessage]:
    return [BrokerMessage(f"{name}-{n}:1", json.dumps({"n": n})) for n in range(count)]


def test_what_is_confirmed_stands_in_a_durable_queue_for_good(broker: Rabbit, publisher: AmqpPublisher) -> None:
    assert publisher.publish(broker.queue, messages(25)) == [""] * 25
    assert broker.count() == 25
    first = broker.got()
    assert first is not None
    assert (first.id, first.body, first.persistent) == ("m-0:1", '{"n": 0}', True)
    broker.channel.queue_declare(broker.queue, durable=True)  # refused where it stands otherwise


def test_a_queue_that_stands_is_taken_as_it_is(broker: Rabbit, publisher: AmqpPublisher) -> None:
    broker.channel.queue_declare(broker.queue, durable=True, arguments={"x-queue-type": "quorum"})
    assert publisher.publish(broker.queue, messages(3)) == [""] * 3
    assert broker.count() == 3


def test_what_finds_no_queue_is_not_confirmed_and_the_queue_is_made_for_the_next(
    broker: Rabbit, publisher: AmqpPublisher
) -> None:
    assert publisher.publish(broker.queue, messages(1)) == [""]
    broker.channel.queue_delete(broker.queue)
    assert publisher.publish(broker.queue, messages(2)) == ["no queue took it: NO_ROUTE"] * 2
    assert publisher.publish(broker.queue, messages(2)) == ["", ""]
    assert broker.count() == 2


def test_what_a_full_queue_refuses_is_not_confirmed(broker: Rabbit, publisher: AmqpPublisher) -> None:
    limits = {"x-max-length": 2, "x-overflow": "reject-publish"}
    broker.channel.queue_declare(broker.queue, durable=True, arguments=limits)
    answers = publisher.publish(broker.queue, messages(4))
    assert sorted(answers) == ["", "", "the broker refused it", "the broker refused it"]
    assert broker.count() == 2


def test_a_queue_that_may_not_be_used_is_said_so_and_the_next_one_still_works(
    broker: Rabbit, publisher: AmqpPublisher
) -> None:
    broker.channel.queue_declare(broker.queue, exclusive=True)
    with pytest.raises(PublishRejected, match="RESOURCE_LOCKED"):
        publisher.publish(broker.queue, messages(1))
    broker.channel.queue_delete(broker.queue)
    assert publisher.publish(broker.queue, messages(1)) == [""]


def test_threads_share_one_connection(broker: Rabbit, publisher: AmqpPublisher) -> None:
    answers: list[list[str]] = []

    def publish(name: str) -> None:
        answers.extend(publisher.publish(broker.queue, messages(10, f"{name}-{turn}")) for turn in range(5))

    threads = [threading.Thread(target=publish, args=(f"t{n}",)) for n in range(8)]
    before = connections()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [[""] * 10] * 40
    assert len(connections() - before) == 1
    assert broker.count() == 400


def connections() -> set[int]:
    """This process's connections to the broker, by their own ports."""
    mine = psutil.Process().net_connections("tcp")
    return {c.laddr.port for c in mine if c.raddr and c.raddr.port == 5672 and c.status == psutil.CONN_ESTABLISHED}


def test_a_connection_that_idled_is_replaced(
    broker: Rabbit, publisher: AmqpPublisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    publisher.publish(broker.queue, messages(1))
    before = connections()
    assert publisher.publish(broker.queue, messages(1)) == [""]
    assert connections() == before
    monkeypatch.setattr(amqp_publisher, "MAX_IDLE_S", 0.0)
    assert publisher.publish(broker.queue, messages(1)) == [""]
    assert len(connections() - before) == 1
    assert broker.count() == 3


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("", "set DUECOURSE_AMQP"),
        ("amqp://127.0.0.1:9/", "Connection refused"),
        ("amqp://guest:s3cret@127.0.0.1:5672/", "ACCESS_REFUSED"),
        ("amqp://guest:guest@127.0.0.1:5672/no-such-host", "NOT_ALLOWED|vhost"),
        ("amqp://127.0.0.1:x/", "not an AMQP URL"),
        ("amqps://guest:s3cret@127.0.0.1/?ssl_options=garbage here", "not an AMQP URL"),
        ("amqps://guest:s3cret@127.0.0.1/?ssl_options={'cafile': '/no/such/file'}", "not an AMQP URL.*No such file"),
        ("amqps://guest:s3cret@127.0.0.1:5672/", "SSLError"),
    ],
)
def test_a_broker_that_cannot_be_had_is_named_without_its_password(url: str, problem: str) -> None:
    need()
    with pytest.raises(PublishRejected, match=problem) as caught:
        AmqpPublisher(url).publish("q", messages(1))
    assert "s3cret" not in str(caught.value)


def test_a_broker_behind_tls_is_published_to_only_under_its_own_name(broker: Rabbit, tmp_path: Path) -> None:
    broker.channel.queue_declare(broker.queue, durable=True)
    for host, problem in (("localhost", ""), ("elsewhere.example", "Hostname mismatch")):
        pem = certificate(tmp_path, host)
        with tls_front(pem, ("127.0.0.1", 5672)) as port:
            trusting = quote(f"{{'cafile': '{pem}'}}")
            own = AmqpPublisher(f"amqps://guest:guest@localhost:{port}/?ssl_options={trusting}")
            strange = AmqpPublisher(f"amqps://guest:guest@localhost:{port}/")
            with pytest.raises(PublishRejected, match="CERTIFICATE_VERIFY_FAILED"):
                strange.publish(broker.queue, messages(1))
            if problem:
                with pytest.raises(PublishRejected, match=problem):
                    own.publish(broker.queue, messages(1))
            else:
                assert own.publish(broker.queue, [*messages(20), BrokerMessage("large:1", "x" * 500_000)]) == [""] * 21
            own.close()
    assert broker.count() == 21


def test_a_broker_that_is_away_is_not_dialled_at_every_turn() -> None:
    dialled: list[socket.socket] = []
    with misbehaving(dialled.append) as url:
        publisher = AmqpPublisher(url.replace("http", "amqp"))
        for _ in range(50):
            with pytest.raises(PublishRejected):
                publisher.publish("q", messages(1))
    assert 1 <= len(dialled) < 5


def test_a_confirm_that_does_not_come_leaves_the_task_in_the_ledger(
    broker: Rabbit, ledger: EmbeddedLedger, clock: HandClock
) -> None:
    broker.channel.queue_declare(broker.queue, durable=True)
    with DeafProxy(("127.0.0.1", 5672)) as proxy:
        publisher = AmqpPublisher(f"amqp://guest:guest@127.0.0.1:{proxy.port}/", within_s=1.5)
        assert publisher.publish(broker.queue, messages(1)) == [""]
        proxy.deaf.set()
        drain(ledger, broker.queue, publisher)
        task = stored_task(ledger)
        assert (task.status, task.run, task.attempt) == (Status.SCHEDULED, 1, 1)
        proxy.deaf.clear()
        clock.advance(60_000)
        drain(ledger, broker.queue, publisher, add=False)
        publisher.close()
        assert proxy.calls == 2, "the connection that owes an answer is not used again"
    assert stored_task(ledger).status is Status.DONE
    assert broker.count() == 3  # one before, one whose confirm was lost, one confirmed: twice, but not lost


def test_an_answer_that_never_came_does_not_hold_up_what_is_published_next(broker: Rabbit) -> None:
    with DeafProxy(("127.0.0.1", 5672)) as proxy:
        publisher = AmqpPublisher(f"amqp://guest:guest@127.0.0.1:{proxy.port}/", within_s=1.0)
        broker.channel.queue_declare(broker.queue, durable=True)
        assert publisher.publish(broker.queue, messages(1)) == [""]
        proxy.deaf.set()
        with pytest.raises(PublishRejected, match="did not answer in time"):
            publisher.publish("duecourse-test-never-made", messages(1))
        proxy.deaf.clear()
        assert publisher.publish(broker.queue, messages(1)) == [""]
        publisher.close()


def drain(ledger: EmbeddedLedger, queue: str, publisher: AmqpPublisher, *, add: bool = True) -> None:
    if add:
        ledger.add([new(kind="bill", payload='{"sum":1}')])
    with engine(ledger, lambda _: Done()) as made:
        targets = targets_of({"bill": f"amqp:{queue}"}, Lambda(), {"amqp": publisher})
        Drainer(ledger, made.runner, targets, made.threads, Limits(30_000, MARGIN_MS), fire_nothing).drain(
            [SHARD], ample
        )


def test_a_message_that_its_consumer_had_when_it_was_killed_is_delivered_again(
    broker: Rabbit, publisher: AmqpPublisher
) -> None:
    publisher.publish(broker.queue, messages(1))
    with child(CONSUMER, broker.url, broker.queue) as consumer:
        assert consumer.readline() == "m-0:1\n"
        assert broker.got() is None
        consumer.kill()
    again = until(broker.got)
    assert (again.id, again.redelivered) == ("m-0:1", True)


@MATRIX
def test_what_was_confirmed_outlives_the_broker(rabbitmq: RabbitMq) -> None:
    publisher, queue = AmqpPublisher(rabbitmq.url), "outlives"
    assert publisher.publish(queue, messages(20)) == [""] * 20
    # In order first: what is written of a new queue itself is only sure to be on disk after that.
    for how in (signal.SIGTERM, signal.SIGKILL):
        rabbitmq.stop(how)
        with pytest.raises(PublishRejected):
            publisher.publish(queue, messages(1, "lost"))
        rabbitmq.start()
        assert until(lambda: published(publisher, queue), every=0.1) == [""]
        assert publisher.publish(queue, messages(20, how.name)) == [""] * 20
    publisher.close()
    with pika.BlockingConnection(pika.URLParameters(rabbitmq.url)) as connection:
        assert connection.channel().queue_declare(queue, passive=True).method.message_count == 62


@MATRIX
def test_a_broker_that_is_short_of_memory_is_said_so_and_what_waits_is_taken_afterwards(rabbitmq: RabbitMq) -> None:
    publisher = AmqpPublisher(rabbitmq.url, within_s=2.0)
    assert publisher.publish("short", messages(1)) == [""]
    with memory_alarm(rabbitmq):
        found = until(lambda: [p for p in publisher.publish("short", messages(1)) if p])
        assert found == ["the broker did not answer in time: it takes no messages, for it is low on memory"]
    assert until(lambda: published(publisher, "short")) == [""]
    publisher.close()


@contextmanager
def memory_alarm(rabbitmq: RabbitMq) -> Iterator[None]:
    control(rabbitmq, "set_vm_memory_high_watermark", "0.000001")
    try:
        yield
    finally:
        control(rabbitmq, "set_vm_memory_high_watermark", "0.6")


def control(server: RabbitMq, *words: str) -> None:
    command = [Path(executable()).with_name("rabbitmqctl"), *words]
    subprocess.run(command, env=server._environment(), check=True, capture_output=True)


@MATRIX
def test_a_process_that_was_frozen_while_its_connection_died_publishes_on_a_new_one(rabbitmq: RabbitMq) -> None:
    with child(PUBLISHER, rabbitmq.url, "frozen") as publisher:
        assert publisher.ask("a:1") == "['']"
        publisher.send(signal.SIGSTOP)
        rabbitmq.stop()
        rabbitmq.start()
        publisher.send(signal.SIGCONT)
        assert publisher.ask("b:1") == "['']"
    with pika.BlockingConnection(pika.URLParameters(rabbitmq.url)) as connection:
        assert connection.channel().queue_declare("frozen", passive=True).method.message_count == 2


def published(publisher: AmqpPublisher, queue: str) -> list[str]:
    try:
        return publisher.publish(queue, messages(1, "after"))
    except PublishRejected:
        return []


@MATRIX
def test_the_command_ends_in_order_though_it_is_told_to_again_and_again(tmp_path: Path) -> None:
    need_server()
    command = [sys.executable, "-m", "local", "rabbitmq", "--port", "0"]
    with subprocess.Popen(command, cwd=ROOT, env={**os.environ, "TMPDIR": str(tmp_path)}, text=True, stdout=PIPE) as up:
        assert up.stdout
        port = up.stdout.readline().rsplit(":", 1)[1].strip("/\n")
        until(lambda: up.send_signal(signal.SIGINT) or up.poll() is not None, every=0.1)
        assert up.returncode == 0
    assert list(tmp_path.iterdir()) == []
    assert running_with(port) == []


def running_with(port: str) -> list[psutil.Process]:
    return [p for p in psutil.process_iter(["cmdline"]) if port in " ".join(p.info["cmdline"] or ())]


@MATRIX
def test_a_broker_of_ones_own_does_not_outlive_a_harness_that_is_killed() -> None:
    need_server()
    command = [sys.executable, "-m", "local", "rabbitmq", "--port", "0"]
    with subprocess.Popen(command, cwd=ROOT, text=True, stdout=PIPE, stderr=PIPE) as harness:
        assert harness.stdout
        url = next(word for word in harness.stdout.readline().split() if word.startswith("amqp://"))
        family = psutil.Process(harness.pid).children(recursive=True)
        names = {process.name() for process in family}
        harness.kill()
    assert {"epmd", "beam.smp"} <= names
    until(lambda: gone([process.pid for process in family]))
    with pytest.raises(PublishRejected):
        AmqpPublisher(url).publish("q", messages(1))
