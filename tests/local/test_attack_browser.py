"""A web page in a real browser: whatever it sends to the harness does nothing, and it reads no answer.

Skipped where no Chromium is installed (`apt-get install chromium`); `test_attack_web_pages.py` sends the same headers.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

import pytest
import urllib3

from duecourse_local.harness.aws.account import REGION
from duecourse_local.harness.options import Options
from duecourse_local.harness.stack import Stack
from tests.support.http_server import ReceivedRequest, Reply, answering

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "microsoft-edge")
BROWSER = next(filter(None, map(shutil.which, NAMES)), "")
PATIENCE_S = 60
EVIL = "evil.example"
QUIET = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--no-proxy-server",
    "--disable-background-networking", "--disable-component-update", "--disable-extensions", "--disable-sync",
)  # fmt: skip
OPENED = (
    f"--host-resolver-rules=MAP {EVIL} 127.0.0.1",
    # Newer ones ask the user before a page reaches this machine: not every browser does, and users say yes.
    "--disable-features=LocalNetworkAccessChecks,BlockInsecurePrivateNetworkRequests,PrivateNetworkAccessSendPreflights",
)
pytestmark = pytest.mark.skipif(not BROWSER, reason="no Chromium is installed: apt-get install chromium")

PAGE = """<!doctype html><meta charset="utf-8"><title>A page</title><script>
const {api, invokes, aws, task, signed} = CONFIG;
const post = (url, body, headers = {}, mode = "no-cors") =>
  () => fetch(url, {method: "POST", mode, body, headers});
const load = (kind, url) => () => new Promise((loaded, failed) => {
  const one = document.createElement(kind);
  one.onload = () => loaded({type: "loaded", text: async () => ""}); one.onerror = () => failed(new Error("blocked"));
  one.src = url; document.head.append(one);
});
const submit = (url) => () => new Promise((done) => {
  const frame = document.createElement("iframe"), form = document.createElement("form");
  frame.name = "f"; frame.onload = () => done({type: "opaque", text: async () => ""});
  form.method = "POST"; form.enctype = "text/plain"; form.target = "f"; form.action = url;
  const field = document.createElement("input"); field.name = task.slice(0, -1) + ', "x": "'; field.value = '"}';
  form.append(field); document.documentElement.append(frame, form); form.submit();
});
const list = {"X-Amz-Target": "DynamoDB_20120810.ListTables", "Content-Type": "application/x-amz-json-1.0"};
const forms = {
  "add by a blob without a type": post(api + "/tasks", new Blob([task])),
  "add by text": post(api + "/tasks", task),
  "add by JSON, asked first": post(api + "/tasks", task, {"Content-Type": "application/json"}, "cors"),
  "add by a form": submit(api + "/tasks"),
  "read": () => fetch(api + "/queues"),
  "read as a script": load("script", api + "/queues"),
  "invoke by a blob without a type": post(invokes, new Blob(["{}"])),
  "invoke by text": post(invokes, "{}"),
  "invoke, asked first": post(invokes, "{}", {"Content-Type": "application/json"}, "cors"),
  "scan": post(aws, "{}", {...list, Authorization: signed}, "cors"),
  "read what was sent": () => fetch(aws + "/duecourse/sent"),
};
(async () => {
  const seen = {};
  for (const [name, form] of Object.entries(forms)) {
    try {
      const answer = await form();
      seen[name] = answer.type === "opaque" ? "opaque" : answer.type + " " + await answer.text();
    }
    catch (error) { seen[name] = "blocked"; }
  }
  await fetch("/seen", {method: "POST", body: JSON.stringify(seen)});
})();
</script>"""
SIGNED = f"AWS4-HMAC-SHA256 Credential=local/20261122/{REGION}/dynamodb/aws4_request, SignedHeaders=host, Signature=0"


class Lit(NamedTuple):
    """A stack that is up, and its folder."""

    stack: Stack
    folder: Path

    def config(self) -> str:
        """What the page is to know: the addresses, and a task to plant."""
        task = {"id": "planted", "kind": "webhook", "delay": 3600, "payload": {"url": "http://example.com/"}}
        invokes = f"{self.stack.lambda_url}/2015-03-31/functions/PollTickFunction/invocations"
        given = {"api": self.stack.api, "invokes": invokes, "aws": self.stack.aws, "signed": SIGNED}
        return json.dumps({**given, "task": json.dumps(task)})

    def invoked(self) -> int:
        """How often the tick ran."""
        return (self.folder / "logs" / "PollTickFunction.log").read_text().count("START RequestId")


@pytest.fixture(scope="module")
def lit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lit]:
    folder = tmp_path_factory.mktemp("state")
    with Stack(Options(store="memory://", tick=0, state=folder)) as stack:
        yield Lit(stack, folder)


@contextmanager
def browser(profile: Path, url: str, *more: str) -> Iterator["subprocess.Popen[str]"]:
    command = (BROWSER, *QUIET, *OPENED, f"--user-data-dir={profile}", *more, url)
    environment = {"PATH": os.environ["PATH"], "HOME": str(profile)}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def shown(profile: Path, url: str) -> str:
    """The page at `url` as the browser has it."""
    with browser(profile, url, "--dump-dom") as process:
        return process.communicate(timeout=PATIENCE_S)[0]


def tried(profile: Path, lit: Lit, name: str) -> dict[str, Any]:
    """What a page at another port saw of each form, by the name that led to it."""
    seen: SimpleQueue[dict[str, Any]] = SimpleQueue()

    def serve(asked: ReceivedRequest) -> Reply:
        if asked.method == "POST":
            seen.put(json.loads(asked.body))
            return Reply()
        return Reply(200, PAGE.replace("CONFIG", lit.config()).encode(), {"Content-Type": "text/html"})

    with answering(serve) as evil, browser(profile, evil.url.replace("127.0.0.1", name)):
        try:
            return seen.get(timeout=PATIENCE_S)
        except Empty:
            pytest.fail("the page has not ended its trials")


def names(stack: Stack) -> Sequence[str]:
    with urllib3.PoolManager() as http:
        return [task["id"] for task in http.request("GET", f"{stack.api}/tasks").json()["tasks"]]


@pytest.mark.parametrize("name", [EVIL, "127.0.0.1", "localhost"], ids=["elsewhere", "our address", "our name"])
def test_a_page_elsewhere_does_nothing_and_reads_nothing(tmp_path: Path, lit: Lit, name: str) -> None:
    before = lit.invoked()
    seen = tried(tmp_path, lit, name)
    assert set(seen.values()) <= {"blocked", "opaque"}, seen
    assert seen["read"] == seen["scan"] == seen["read as a script"] == seen["read what was sent"] == "blocked"
    assert (names(lit.stack), lit.invoked()) == ([], before)


def test_a_name_that_was_made_to_lead_here_shows_nothing(tmp_path: Path, lit: Lit) -> None:
    """DNS rebinding: the page's own name leads here by now, and so its origin is the harness's own port."""
    for url in (lit.stack.api + "/queues", lit.stack.aws + "/duecourse/sent"):
        page = shown(tmp_path, url.replace("127.0.0.1", EVIL))
        assert "This harness answers to localhost, not to evil.example" in page
        assert "mails" not in page


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost"])
def test_the_harness_s_own_pages_are_shown(tmp_path: Path, lit: Lit, name: str) -> None:
    assert "<title>" in shown(tmp_path / "docs", lit.stack.api.replace("127.0.0.1", name) + "/docs")
    assert '"mails"' in shown(tmp_path / "sent", lit.stack.aws.replace("127.0.0.1", name) + "/duecourse/sent")
