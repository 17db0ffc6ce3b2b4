"""A server whose clock is far from this machine's: the process that meets it says so, each tick, and the doctor."""

import logging
import re
import socket
from collections.abc import Iterator

import pytest

from duecourse.ledger.connect import connect
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ringing.tick import Retention, Sweeper
from duecourse_local.doctor.examination import Examination
from duecourse_local.doctor.finding import Level
from tests.support.engine import MARGIN_MS, ample, engine
from tests.support.ledger import new
from tests.support.proxies import Link, Proxy
from tests.support.redis_server import RedisServer

pytestmark = pytest.mark.slow

TIME = re.compile(rb"\*2\r\n\$10\r\n(\d{10})\r\n\$")
DAY_S = 86_400
WORDS = "CLOCKS DIFFER: the store's clock is"


class SteppedProxy(Proxy):
    """Answers TIME by a clock that is `ahead_s` seconds ahead of the server's."""

    def __init__(self, server: RedisServer) -> None:
        listener = socket.create_server(("127.0.0.1", 0))
        self._server = str(server.socket)
        super().__init__(listener, self._dialled)
        self.url = f"redis://127.0.0.1:{listener.getsockname()[1]}/0"
        self.ahead_s = 0

    def down(self, link: Link, data: bytes) -> None:
        """Pass on what the server says, with another time."""
        super().down(link, TIME.sub(lambda found: found[0].replace(found[1], self._other(found[1])), data))

    def _other(self, seconds: bytes) -> bytes:
        return str(int(seconds) + self.ahead_s).encode()

    def _dialled(self) -> socket.socket:
        far = socket.socket(socket.AF_UNIX)
        far.connect(self._server)
        return far


@pytest.fixture
def proxy(server: RedisServer) -> Iterator[SteppedProxy]:
    with SteppedProxy(server) as stepped:
        yield stepped


@pytest.mark.parametrize(
    ("ahead_s", "said"),
    [(30 * DAY_S + 30, "30 days ahead of"), (90, "1 minute ahead of"), (20, "")],
)
def test_a_process_that_meets_such_a_server_logs_an_error_and_so_does_each_tick(
    proxy: SteppedProxy, caplog: pytest.LogCaptureFixture, ahead_s: int, said: str
) -> None:
    proxy.ahead_s = ahead_s
    with connect(proxy.url) as client, caplog.at_level(logging.ERROR):
        ledger = Ledger(client)
        ledger.add([new()])
        assert caplog.text.count(f"{WORDS} {said}") == (1 if said else 0)
        with engine(ledger, lambda _task: None) as run:
            sweeper = Sweeper(ledger, run.drainer, Retention(DAY_S * 1_000), MARGIN_MS)
            assert sweeper.tick(sweeper.survey(ample), ample).done == 1
        assert caplog.text.count(f"{WORDS} {said}") == (2 if said else 0)


def test_a_server_that_is_behind_is_told_of_too(proxy: SteppedProxy) -> None:
    proxy.ahead_s = -3_630
    with connect(proxy.url) as client:
        [warning] = Ledger(client).warnings()
    assert warning.startswith(f"{WORDS} 1 hour behind this process's")


@pytest.mark.parametrize(("ahead_s", "level"), [(3_600, Level.FAULT), (-3_600, Level.FAULT), (5, Level.WARNING)])
def test_the_doctor_finds_it(proxy: SteppedProxy, ahead_s: int, level: Level) -> None:
    proxy.ahead_s = ahead_s
    with connect(proxy.url) as client:
        found = [one for _, part in Examination(client, "duecourse", events=False).run() for one in part]
    assert [one.level for one in found if one.check == "clock"] == [level]
