"""The benchmark: it measures what the product has by now, far from and near to its server, and writes what it found."""

import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from xml.etree import ElementTree as Xml

import psutil
import pytest

import tests.bench
from tests.bench import machine, pictures, report
from tests.bench.away import Away, DelayLine
from tests.bench.command import MARK, Found, absolutes, ratios
from tests.bench.figures import AWAY, LOOPBACK, Figure, Rounds, lateness_of
from tests.bench.peers import rows, sides
from tests.bench.sections import ALL, PEERS
from tests.bench.server import BenchServer
from tests.bench.stage import Stage
from tests.support.drainer import ENVIRONMENT
from tests.support.pages import DOCS
from tests.support.project import ROOT

BENCH = Path(tests.bench.__file__).parent
MODULES = [path.stem for path in BENCH.glob("[a-z]*.py")]
OWN_PEERS = [f"peers.{name}" for name in ("installed", "no_op", "ours", "rows", "sides", "turns")]
HELD_S = 0.05


@pytest.mark.parametrize("module", [*MODULES, *OWN_PEERS])
def test_each_section_can_begin(module: str) -> None:
    assert import_module(f"tests.bench.{module}").__doc__


# The proxy.


@contextmanager
def held_up(serve: Callable[[socket.socket], None], held_s: float = HELD_S) -> Iterator[Callable[[], socket.socket]]:
    """A server whose connections `serve` has, each in a thread, behind a proxy: what connects to the proxy."""
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0), backlog=256) as server, socket.create_server(("127.0.0.1", 0)) as near:
        line = DelayLine(near, server.getsockname(), held_s)

        def pass_on() -> None:
            while not over.is_set():
                line.step()

        def accept() -> None:
            while True:
                own, _ = server.accept()
                if over.is_set():
                    own.close()
                    return
                threads.append(threading.Thread(target=_closing, args=(serve, own)))
                threads[-1].start()

        threads = [threading.Thread(target=pass_on), threading.Thread(target=accept)]
        for thread in threads:
            thread.start()
        try:
            with ExitStack() as opened:
                yield lambda: opened.enter_context(socket.create_connection(near.getsockname()))
        finally:
            over.set()
            for listener in (server, near):  # a last call, so that neither waits
                socket.create_connection(listener.getsockname()).close()
            threads[0].join()
            line.close()
            for thread in threads[1:]:
                thread.join()


def _closing(serve: Callable[[socket.socket], None], own: socket.socket) -> None:
    with own:
        serve(own)


def echo(own: socket.socket) -> None:
    while data := own.recv(65_536):
        own.sendall(data)


def received(own: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count and (more := own.recv(65_536)):
        data += more
    return data


def test_the_proxy_holds_bytes_in_both_directions() -> None:
    came: list[float] = []

    def serve(own: socket.socket) -> None:
        own.recv(1)
        came.append(time.perf_counter())
        own.sendall(b"b")

    with held_up(serve) as connect:
        client = connect()
        began = time.perf_counter()
        client.sendall(b"a")
        assert client.recv(1) == b"b"
        assert came[0] - began >= HELD_S
        assert time.perf_counter() - came[0] >= HELD_S


def test_the_proxy_delays_bytes_and_no_round_trips() -> None:
    def serve(own: socket.socket) -> None:
        first = own.recv(1)
        came.set()
        own.sendall(first + own.recv(1))

    came = threading.Event()
    with held_up(serve, held_s=0.002) as connect:
        client = connect()
        client.sendall(b"a")
        assert came.wait(30)
        client.sendall(b"b")  # it is on its way while the first has no answer
        assert received(client, 2) == b"ab"


def test_the_proxy_keeps_the_order_of_many_connections() -> None:
    with held_up(echo, held_s=0.002) as connect:
        sent = {connect(): b"".join(b"%d:%d " % (who, n) for n in range(3_000)) for who in range(100)}
        for first in range(0, 40_000, 4_000):
            for own, text in sent.items():
                own.sendall(text[first : first + 4_000])
        for own, text in sent.items():
            assert received(own, len(text[:40_000])) == text[:40_000]


def test_the_proxy_passes_on_that_a_side_has_hung_up() -> None:
    with held_up(echo, held_s=0.002) as connect:
        client = connect()
        client.sendall(b"last")
        client.shutdown(socket.SHUT_WR)
        assert received(client, 5) == b"last", "all of it, and then the end"


# The machine.


def busy(*shares: float) -> tuple[machine.Quiet, list[str]]:
    said: list[str] = []
    looks = iter(shares)
    return machine.Quiet(2.0, said.append, lambda: next(looks)), said


def test_a_row_waits_until_other_programs_are_quiet() -> None:
    quiet, said = busy(0.5, 0.2, 0.07)
    assert quiet.wait()
    assert quiet.left_s == 2.0 - 2 * machine.LOOK_S
    assert len(said) == 1


def test_a_wait_that_is_given_up_is_said_and_marks_its_rows() -> None:
    quiet, said = busy(*[0.5] * 5, 0.5, 0.01)
    rows = list(quiet.rows(iter([[Figure("a"), Figure("b")], [Figure("c")]])))
    assert [row.is_marked for row in rows] == [True, True, True]
    assert quiet.left_s == 0
    assert said[-1].startswith("waited long enough")


LEAST_S = 0.25
"""What is seen of 0.3 s: a sum of four times in ticks of 10 ms, each rounded down."""


def test_work_of_this_program_and_its_children_is_not_of_others() -> None:
    before = machine._own_s()
    work = "import time\nwhile time.process_time() < 0.3: pass"
    subprocess.run([sys.executable, "-c", work], check=True)
    assert machine._own_s() - before > LEAST_S


ORPHAN = """
import subprocess, sys, time
from tests.bench import machine
machine.adopt()
before = machine._own_s()
burn = "import time, os; os.write(1, b'on'); exec('while time.process_time() < 0.3: pass'); os.write(1, b'up')"
parent = f"import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', {burn!r}]); time.sleep(60)"
with subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE) as process:
    assert process.stdout.read(2) == b"on"
    process.kill()
    process.wait()
    assert process.stdout.read(2) == b"up", "the child goes on without its parent"
    process.stdout.read()
print(machine._own_s() - before)
"""


@pytest.mark.slow
def test_work_of_a_killed_workers_child_is_not_of_others() -> None:
    done = subprocess.run(
        [sys.executable, "-c", ORPHAN], cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, check=False
    )
    assert float(done.stdout or "0") > LEAST_S, done.stderr


def test_the_machine_is_described() -> None:
    found = machine.described("8.2")
    assert {"date", "processors", "Python", "Redis"} <= found.keys()
    assert found["Python"].endswith(machine.build())


# What is written.

FIGURES = [
    Figure("drain: BullMQ", "0.80 x (0.70 to 0.90)", "≥ 2 x", "8,000/s", "BullMQ 10,000/s", LOOPBACK, 0.02),
    Figure("drain: BullMQ", "1.50 x (1.40 to 1.60)", "≥ 2 x", "6,000/s", "BullMQ 4,000/s", AWAY, 0.31, True),
    Figure("bytes", "", "≤ 420 bytes", "398 bytes"),
]


@pytest.fixture
def found(tmp_path: Path) -> Found:
    curves = {f"{side}, {place}": [0.5, 2.0, 90.0] for side in ("duecourse", "BullMQ") for place in (LOOPBACK, AWAY)}
    bars = {LOOPBACK: {"duecourse": 8_000.0, "BullMQ": 10_000.0}}
    stage = Stage(BenchServer("", ""), Away("", psutil.Process()), tmp_path, print, curves=curves, bars=bars)
    return Found(FIGURES, {"date": "2026-11-28 20:30 UTC", "Python": "3.11.2"}, stage)


def test_a_ratio_is_taken_round_by_round() -> None:
    ratio = Rounds([30.0, 10.0, 50.0]).beside(Rounds([10.0, 10.0, 10.0]))
    assert ratio.times("no-op") == "3.00 x (1.00 to 5.00) no-op"
    assert Rounds([1_000.0, 3_000.0, 2_000.0]).per_second() == "2,000/s (1,000 to 3,000)"
    assert lateness_of([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]).startswith("p50 4 (2 to 6) · ")


def test_ratios_have_both_places_beside_each_other_and_absolutes_a_row_each() -> None:
    assert ratios(FIGURES).rows == [["drain: BullMQ", FIGURES[0].ratio, FIGURES[1].ratio, "≥ 2 x"]]
    shown = absolutes(FIGURES).rows
    assert [row[0] for row in shown] == ["drain: BullMQ", "drain: BullMQ", "bytes"]
    assert [row[-1] for row in shown] == ["2%", f"31%, {MARK}", "0%"]


def test_a_part_has_ratios_first_and_keeps_rows_that_lose(found: Found) -> None:
    text = report.block("drain", found)
    places = [
        text.index(one)
        for one in ("0.80 \N{MULTIPLICATION SIGN}", "bench-throughput.svg", "8,000/s", "2026-11-28", "celery 5")
    ]
    assert places == sorted(places)


def test_a_part_that_is_not_measured_keeps_what_it_had(found: Found) -> None:
    first = report.page("", {"drain": "| old |", "late": "| late |"})
    second = report.page(f"{first}\n## Gone\n\nBy hand: 7.05\n", {"drain": report.block("drain", found)})
    assert "| late |" in second
    assert "| old |" not in second
    assert "7.05" not in second
    assert re.findall("<!-- measured: (.+) -->", second) == [*ALL]


def test_a_part_is_written_with_its_picture(found: Found, tmp_path: Path) -> None:
    for name in report.PICTURES:
        report.write(name, found, tmp_path / "page.md", tmp_path)
    text = (tmp_path / "page.md").read_text()
    for file, shown, _ in report.PICTURES.values():
        assert f"![{shown}](pictures/{file})" in text
        svg = (tmp_path / file).read_text()
        texts = ["".join(one.itertext()) for one in Xml.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]  # noqa: S314 - our own
        assert any(one.startswith("BullMQ") for one in texts)
        assert "prefers-color-scheme:dark" in svg


def test_a_curve_rises_to_its_last_task() -> None:
    svg = pictures.lateness({f"duecourse, {LOOPBACK}": [1.0, 10.0, 100.0]}, "")
    points = [tuple(map(float, one.split(","))) for one in re.findall(r'points="([^"]+)"', svg)[0].split()]
    assert points == sorted(points, key=lambda one: (one[0], -one[1]))
    assert points[0][1] - points[-1][1] == pictures.HIGH


def test_the_page_is_what_the_command_writes() -> None:
    assert report.page(report.PAGE.read_text(), {}) == report.PAGE.read_text(), 'run: make bench-report ARGS="--only"'


def test_the_figures_of_the_page_have_their_date_and_the_pictures_are_there() -> None:
    text = report.PAGE.read_text()
    for name in ALL:
        part = re.search(rf"<!-- measured: {name} -->\n(.*?)(?=\n## |\Z)", text, re.DOTALL)
        assert part
        assert part[1].startswith("Not measured yet") or "| date |" in part[1], name
        if name in report.PICTURES and "| date |" in part[1]:
            assert (DOCS / "pictures" / report.PICTURES[name][0]).exists()


def test_a_peer_is_shown_by_default_and_at_its_best(found: Found) -> None:
    ours, other = sides._ours(), sides._bullmq(())
    rates = {("duecourse", one): [80.0, 90.0] for one in ours.drains}
    rates |= {("BullMQ", one): [rate] * 2 for one, rate in zip(other.drains, (10.0, 160.0, 20.0), strict=True)}
    due = {one: rates[one] for one in (("duecourse", "100 at a time"), ("BullMQ", "100 at a time"))}
    shown = {one.name: one for one in rows._drains_shown(found.stage, LOOPBACK, [ours, other], rates, due)}
    assert shown["drain, defaults: BullMQ, 1 at a time"].ratio == "8.50 x (8.00 to 9.00)"
    best = shown["drain, 100 at a time: BullMQ, 16 at a time"]
    assert (best.ratio, best.aim) == ("0.53 x (0.50 to 0.56)", "≥ 2 x"), "a row that loses"
    assert found.stage.bars[LOOPBACK] == {"duecourse": 85.0, "BullMQ": 160.0}


def test_a_worker_whose_tasks_are_not_done_in_time_is_shown_with_a_bound() -> None:
    never = rows._crash_shown("Celery", Rounds([20.0, 30.0]), Rounds([float("inf"), 60.0]))
    assert never.ratio == f"< {30.0 / rows.PATIENCE_S:.2f} x"
    assert never.beside == f"Celery 1 of 2 within {rows.PATIENCE_S:.0f} s"


def test_each_comparison_is_a_part_of_the_page() -> None:
    assert ALL.keys() >= PEERS.keys() == {"client", "drain", "late", "crash"}
