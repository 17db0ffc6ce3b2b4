"""Processes that fork in their use of the product: `python -m tests.support.forking CASE [ARGUMENT]` prints the result.

A program of its own, for a test's process has threads of others, which a fork there would not bring along.
"""

import asyncio
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from duecourse import Done, Task
from duecourse.app import PROCESS
from duecourse.base.cpu_turns import Turns
from duecourse.client.async_client import AsyncClient
from duecourse.client.client import Client
from duecourse.errors import DuecourseError
from duecourse.guard.call_credentials import Credential, HeaderCredential, bearer_header
from duecourse.guard.http_client import GuardedHttpClient
from duecourse.guard.http_types import CredentialName, HttpRequest
from duecourse.guard.signing_secrets import Secrets
from duecourse.ledger.connect import connect, execute
from duecourse.services.aws import DynamoDbResults, make_client
from duecourse.services.secrets import ManagedCredentials, ManagedSecret, SigningSecrets
from duecourse.testing import make_task, run

CHILDREN, THREADS, EACH = 3, 4, 40
FORKS = 5
PATIENCE_S = 20
"""Time after which a child that hangs is killed."""


def child(work: Callable[[], object]) -> int:
    """The exit status of a forked child that works and prints what the work returns."""
    pid = os.fork()
    if not pid:
        signal.alarm(PATIENCE_S)
        tell(work())
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def tell(what: object) -> None:
    os.write(1, f"{what}\n".encode())


def add(name: str) -> str:
    """The id of a task that was added, or the error."""
    try:
        return Client.from_env().add(kind="webhook", payload={"url": "https://a.b"}, id=name, delay="PT1H").task.id
    except DuecourseError as error:
        return f"{type(error).__name__}: {error}"


def embedded() -> None:
    """A child adds by its parent's client; then the parent does."""
    tell(add("parent"))
    tell(child(lambda: add("child")))
    tell(add("after"))


def clients(url: str) -> None:
    """Two clients at URLs, used by a child too while a thread of its parent builds a part of one's App."""
    one, two = Client(url, namespace="one"), Client(url, namespace="two")
    hook = {"kind": "webhook", "payload": {"url": "https://a.b"}, "delay": "PT1H"}
    one.add(**hook, id="parent")
    built, forked = threading.Event(), threading.Event()

    def build() -> None:
        with two._app_handle.app.building:
            built.set()
            forked.wait()

    thread = threading.Thread(target=build)
    thread.start()
    built.wait()
    tell(child(lambda: [client.add(**hook, id="child").task.id for client in (one, two)]))
    forked.set()
    thread.join()
    tell([one.get("child").id, two.get("child").id, one.get("parent").id])


def connected(url: str) -> None:
    """The server's numbers of the connections of a parent, of its child, and of the parent again."""
    client = connect(url)

    def number() -> object:
        return execute(client, "CLIENT", "ID")

    tell(number())
    tell(child(number))
    tell(number())


def awaiting(url: str) -> None:
    """A child awaits verbs of a client that its parent has awaited before."""
    client = AsyncClient(url, threads=1)

    async def add(name: str) -> str:
        hook = {"kind": "webhook", "payload": {"url": "https://a.b"}, "delay": "PT1H"}
        return (await client.add(**hook, id=name)).task.id

    tell(asyncio.run(add("parent")))
    tell(child(lambda: asyncio.run(add("child"))))
    tell(asyncio.run(add("after")))


def looping() -> None:
    """A child runs an async handler, as its parent did before: the thread of the parent's loop is not there."""

    async def handler(task: Task) -> Done:
        return Done(task.id)

    def result(id: str) -> object:
        outcome = run(handler, make_task(id=id)).outcome
        assert isinstance(outcome, Done)
        return outcome.result

    tell(result("parent"))
    tell(child(lambda: result("child")))


def waiting(url: str) -> None:
    """A child waits for a task by a client by which its parent waits for it, and ends it."""
    client = Client(url)
    client.add(kind="webhook", payload={"url": "https://a.b"}, delay="PT1H", id="a")
    told: list[str] = []
    thread = threading.Thread(target=lambda: told.append(client.wait("a").status))
    thread.start()
    waits = client._app_handle.app.waits
    # Until its thread listens it imports what it needs, and Python gives a child no module that a thread is importing.
    while not waits._hearing:
        time.sleep(0.01)

    def wait_and_end() -> str:
        mine: list[str] = []
        thread = threading.Thread(target=lambda: mine.append(client.wait("a").status))
        thread.start()
        while not waits.count():
            time.sleep(0.01)
        client.cancel("a")
        thread.join()
        return mine[0]

    with waits._lock:  # as another thread has it, perhaps, when a process forks
        tell(child(wait_and_end))
    thread.join()
    tell(told[0])


def building() -> None:
    """A fork while another thread builds a part of the App."""
    app, forked = PROCESS.app(), threading.Event()
    built = threading.Event()

    def build() -> None:
        with app.building:
            built.set()
            forked.wait()

    thread = threading.Thread(target=build)
    thread.start()
    built.wait()
    tell(child(lambda: add("child")))
    forked.set()
    thread.join()


def calling(url: str) -> None:
    """A parent that has called, and a child that calls the same address."""
    from tests.support.egress import HERE  # for a fifth of all that a program like this imports

    out = GuardedHttpClient(1, HERE)

    def call() -> int:
        return out.call(HttpRequest("GET", url, {}, None, 5_000, 1_000)).status

    tell(call())
    tell(child(call))
    tell(call())


def computing() -> None:
    """A child computes while its parent has the turn."""
    turns = Turns()

    def take() -> str:
        with turns.computing("-", 1) as computation:
            computation.take_turn()
        return "computed"

    with turns.computing("-", 1) as long:
        long.take_turn()
        tell(child(take))
    tell(take())


def results() -> None:
    """A parent that has asked its results table, and a child that asks it too."""
    table = DynamoDbResults("results", 1_000)

    def ask() -> object:
        return table.get("default", "a", "-")

    tell(ask())
    tell(child(ask))
    tell(ask())


class HeldUp:
    """A client of Secrets Manager whose first answer waits until the fork is over."""

    def __init__(self) -> None:
        self.asked, self.forked = threading.Event(), threading.Event()

    def get_secret_value(self, **_: object) -> dict[str, str]:
        if not self.asked.is_set():
            self.asked.set()
            self.forked.wait()
        return {"SecretString": "redis://host"}


def reading_a_secret() -> None:
    """A fork while another thread reads a secret, and one that a credential is in."""
    for read in (_secret_of, _credential_of, _signing_of):
        manager = HeldUp()
        ask = read(manager)
        thread = threading.Thread(target=ask)
        thread.start()
        manager.asked.wait()
        tell(child(ask))
        manager.forked.set()
        thread.join()
        tell(ask())


def _secret_of(manager: HeldUp) -> Callable[[], object]:
    return ManagedSecret("DUECOURSE_STORE_SECRET", "a", str, manager).value


def _signing_of(manager: HeldUp) -> Callable[[], object]:
    def read(text: str) -> Secrets:
        return {text: ()}

    secrets = SigningSecrets("a", read, manager)
    return lambda: next(iter(secrets()))


def _credential_of(manager: HeldUp) -> Callable[[], object]:
    def read(text: str) -> Credential:
        return HeaderCredential((), bearer_header(text))

    credentials = ManagedCredentials("a/", read, manager)

    def ask() -> str:
        found = credentials.get(CredentialName("-", "b"), 10.0)
        return found.key.value if isinstance(found, HeaderCredential) else ""

    return ask


def making_clients() -> None:
    """Forks while another thread makes clients of AWS, one after another."""
    stop, made = threading.Event(), threading.Event()

    def make() -> str:
        return str(make_client("sqs", attempts=1, read_timeout_s=1.0).meta.region_name)

    def keep_making() -> None:
        while not stop.is_set():
            make()
            made.set()

    thread = threading.Thread(target=keep_making)
    thread.start()
    made.wait()
    for _ in range(FORKS):
        tell(child(make))
    stop.set()
    thread.join()


def storm() -> None:
    """Threads of a parent and of its children add at once, all by clients of before the forks."""
    client = Client.from_env()

    def one(name: str) -> str:
        return client.add(kind="webhook", payload={"url": "https://a.b"}, id=name, delay="PT1H").task.id

    def many(who: str) -> int:
        with ThreadPoolExecutor(THREADS) as pool:
            return len(set(pool.map(one, [f"{who}-{n}" for n in range(EACH)])))

    one("first")
    with ThreadPoolExecutor(CHILDREN) as forks:
        busy = threading.Thread(target=many, args=("parent",))
        busy.start()
        statuses = list(forks.map(lambda n: child(lambda: many(f"child{n}")), range(CHILDREN)))
        busy.join()
    tell(statuses)


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
