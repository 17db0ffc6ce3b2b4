"""`duecourse page` in a process of its own: its address, its places, its end; and the page of `up`."""

import json
import signal
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import pytest
import urllib3

from duecourse_local.harness.addresses import listen
from tests.support.commands import BARE, in_this_process, up
from tests.support.http_server import ReceivedRequest, Reply, answering
from tests.support.page import ledger_options, page_command
from tests.support.project import ROOT

pytestmark = pytest.mark.slow

WEBHOOK = {"id": "w1", "kind": "webhook", "payload": {"url": "https://example.com/"}, "delay": "PT1H"}
ENDS_WITHIN_S = 20
"""Less than the time after which a request to an API that hangs is given up."""


class Browser(NamedTuple):
    """A browser that opened the page's address."""

    page: str
    cookie: str

    def ask(self, method: str, path: str, body: object = None) -> urllib3.BaseHTTPResponse:
        parts = urlsplit(self.page)
        headers = {
            "cookie": self.cookie,
            "origin": f"{parts.scheme}://{parts.netloc}",
            "x-duecourse-page": "1",
            "content-type": "application/json",
        }
        content = None if body is None else json.dumps(body)
        with urllib3.PoolManager(retries=False) as http:
            return http.request(method, self.page + path, headers=headers, body=content)


def browser(address: str) -> Browser:
    with urllib3.PoolManager(retries=False) as http:
        answer = http.request("GET", address)
    assert answer.status == 303
    return Browser(address.partition("?")[0].rstrip("/"), answer.headers["set-cookie"].partition(";")[0])


def test_the_page_serves_a_store_until_ctrl_c(tmp_path: Path) -> None:
    with page_command(*ledger_options(tmp_path), "--port", "0") as (address, process):
        opened = browser(address)
        assert '<base href="/' in opened.ask("GET", "/tasks").data.decode()
        assert opened.ask("POST", "/api/tasks", WEBHOOK).status == 201
        assert opened.ask("GET", "/api/-/session").json()["place"].startswith("store leveldb://")
        [added] = opened.ask("GET", "/api/tasks/w1/why").json()["timeline"]
        assert added["by"].startswith("command:")
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=ENDS_WITHIN_S)
    assert process.returncode == 0
    assert said.splitlines()[-2:] == ["stopping…", "stopped"]
    assert "Traceback" not in said
    shown = in_this_process("show", "w1", *ledger_options(tmp_path))
    assert (shown.exit_code, "w1" in shown.stdout) == (0, True)


def test_ctrl_c_waits_for_no_api_that_hangs(tmp_path: Path) -> None:
    entered, released = threading.Event(), threading.Event()

    def hang(_asked: ReceivedRequest) -> Reply:
        entered.set()
        assert released.wait(60)
        return Reply(200, b"{}")

    with answering(hang) as server:
        try:
            with page_command("--url", server.url, "--port", "0", "--stack", str(tmp_path)) as (address, process):
                opened = browser(address)
                waiting = threading.Thread(target=ask_in_vain, args=(opened,))
                waiting.start()
                assert entered.wait(60)
                process.send_signal(signal.SIGTERM)
                assert process.wait(ENDS_WITHIN_S) == 0
                waiting.join()
        finally:
            released.set()


def ask_in_vain(opened: Browser) -> None:
    with suppress(urllib3.exceptions.HTTPError):
        opened.ask("GET", "/api/queues")


def test_two_pages_at_once_have_ports_and_keys_of_their_own(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("one", "two")]
    for folder in folders:
        folder.mkdir()
    with page_command(*ledger_options(folders[0])) as (one, _), page_command(*ledger_options(folders[1])) as (two, _):
        pages = [browser(address) for address in (one, two)]
        assert len({urlsplit(address).port for address in (one, two)}) == 2
        assert pages[0].ask("POST", "/api/tasks", WEBHOOK).status == 201
        assert [len(opened.ask("GET", "/api/tasks").json()["tasks"]) for opened in pages] == [1, 0]
        assert pages[1]._replace(cookie=pages[0].cookie).ask("GET", "/api/tasks").status == 401


def test_a_read_only_page_has_no_way_to_change(tmp_path: Path) -> None:
    with page_command(*ledger_options(tmp_path), "--port", "0", "--read-only") as (address, _):
        opened = browser(address)
        assert opened.ask("GET", "/api/-/session").json()["read_only"] is True
        assert opened.ask("POST", "/api/tasks", WEBHOOK).status == 403


def test_a_port_that_is_taken_is_one_line_and_code_2(tmp_path: Path) -> None:
    with listen(0, "--port") as sock:
        port = str(sock.getsockname()[1])
        done = in_this_process("page", *ledger_options(tmp_path), "--port", port)
    assert (done.exit_code, done.stdout) == (2, "")
    assert f"port {port} cannot be used" in done.stderr
    assert "choose another with --port" in done.stderr


def test_the_page_answers_on_loopback_alone(tmp_path: Path) -> None:
    with page_command(*ledger_options(tmp_path), "--port", "0") as (address, _):
        port = urlsplit(address).port
        assert port
        with socket.socket() as other, pytest.raises(ConnectionRefusedError):
            other.connect(("127.0.0.2", port))  # another address of this machine


MISSING = """
import sys

class Missing:
    def find_spec(self, name, *_):
        if name.partition(".")[0] in ("starlette", "uvicorn"):
            raise ModuleNotFoundError(name, name=name)

sys.meta_path.insert(0, Missing())
"""


def program(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=BARE | {"COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_without_its_libraries_the_command_names_the_extra(tmp_path: Path) -> None:
    code = f"{MISSING}\nfrom duecourse_local.cli.app import app\napp({['page', *ledger_options(tmp_path)]!r})"
    done = program(code)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == ("the page needs Starlette and uvicorn: pip install 'duecourse[cli,page]'")


def test_without_starlette_a_mount_names_the_extra() -> None:
    code = f"{MISSING}\nfrom duecourse import Client, page\npage.app(Client('memory://'))"
    done = program(code)
    assert done.stderr.splitlines()[-1] == (
        "ModuleNotFoundError: the page needs Starlette: pip install 'duecourse[page]'"
    )


@pytest.mark.parametrize("auth", ["none", "jwt", "iam"])
def test_a_stack_that_is_up_has_a_page(tmp_path: Path, auth: str) -> None:
    options = ("--store", "memory://", "--page-port", "0", "--no-bridge", "--auth", auth)
    with up(tmp_path / "state", *options) as running:
        said = (tmp_path / "state.err").read_text().splitlines()
        assert next(line for line in said if " ready  " in line) == f"page       ready  {running.line['page']}"
        opened = browser(running.line["page"])
        assert opened.ask("POST", "/api/tasks", WEBHOOK).status == 201
        assert opened.ask("GET", "/api/tasks/w1").json()["task"]["id"] == "w1"
        assert opened.ask("GET", "/api/-/session").json()["place"].startswith(f"API {running.line['api']}")
        with urllib3.PoolManager(retries=False) as http:
            linked = http.request("GET", opened.page, headers={"sec-fetch-site": "cross-site"})
        assert (linked.status, b'http-equiv="refresh"' in linked.data) == (200, True)  # as a link in a chat opens it
