"""Kinds that a program without targets may ask for: those that deployments wrote into the ledger."""

from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest

from duecourse import Client, errors
from duecourse.ledger.embedded.ledger import EmbeddedLedger
from duecourse.ledger.operation_types import Deployed
from duecourse.open_ledger import StoreLocation
from duecourse.settings import Settings
from duecourse.tasks.kinds import SETTLED_S, TRUSTED_S, DeploymentReader, LedgerKinds, OwnKinds
from tests.support.functions import invoke, saved
from tests.support.ledger import new
from tests.support.wired import wired_with

TARGETS = {"report": "lambda:Report", "reminder": "lambda:SendReminder", "poll": "inline"}
URL = "redis://ann:secret@h1:6379/3?db=3"


class Record:
    """A record of one kind that counts its readings."""

    def __init__(self) -> None:
        self.kinds, self.readings = {"report"}, 0

    def write(self, kinds: object, handed: object, results: str = "") -> bool:
        raise NotImplementedError((kinds, handed, results))

    def read(self) -> Deployed:
        self.readings += 1
        return Deployed(frozenset(self.kinds), frozenset(self.kinds), "", 1)


@pytest.fixture
def record() -> Record:
    return Record()


@pytest.fixture
def passing(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The time of the readings, by hand."""
    time = SimpleNamespace(now=0.0)
    monkeypatch.setattr("duecourse.tasks.kinds.time", SimpleNamespace(monotonic=lambda: time.now))
    return time


@pytest.fixture
def kinds(record: Record, passing: SimpleNamespace) -> LedgerKinds:
    passing.now = 100.0
    return LedgerKinds({"poll"}, DeploymentReader(lambda: record), lambda: "here")


@pytest.fixture
def client(ledger: EmbeddedLedger) -> Iterator[Client]:
    with wired_with(settings=Settings(), ledger=ledger) as app:
        vars(app)["place"] = StoreLocation(URL)
        yield Client.from_env()


@pytest.fixture
def deployed(ledger: EmbeddedLedger) -> Callable[[], None]:
    """A tick of a deployment with these targets, on the same ledger."""

    def tick() -> None:
        with wired_with(settings=Settings(targets=TARGETS), ledger=ledger):
            invoke("poll_tick", saved("poll_tick/rule"))

    return tick


def test_a_program_without_targets_adds_what_a_deployment_runs(
    client: Client, deployed: Callable[[], None], passing: SimpleNamespace
) -> None:
    with pytest.raises(errors.InvalidInput):
        client.add(kind="report", payload={})
    deployed()
    passing.now += SETTLED_S + 1
    assert client.add(kind="report", payload={}, notify_done={"target": "report"}).created


def test_a_function_that_drains_writes_its_kinds_when_it_gets_ready(client: Client, ledger: EmbeddedLedger) -> None:
    with wired_with(settings=Settings(targets=TARGETS), ledger=ledger) as app:
        app.get_ready()
    assert client.add(kind="report", payload={}).created


def test_an_unknown_kind_says_where_it_was_looked_for_and_what_is_known(
    client: Client, deployed: Callable[[], None]
) -> None:
    deployed()
    with pytest.raises(errors.InvalidInput) as caught:
        client.add(kind="strange", payload={})
    [problem] = caught.value.problems
    assert problem.field == "kind"
    known = "known kinds: poll, report, webhook, from the ledger duecourse at redis://h1:6379/3, written at"
    assert known in problem.problem
    assert problem.problem.endswith(
        "Start a worker or deploy a function that has this kind, or look for a slip in its name"
    )
    assert "secret" not in problem.problem


def test_a_receiver_that_no_deployment_hands_over_is_rejected_with_those_that_are(
    client: Client, deployed: Callable[[], None]
) -> None:
    deployed()
    with pytest.raises(errors.InvalidInput, match=r"notify_done\.target: .*known: report, from the ledger"):
        client.add(kind="report", payload={}, notify_done={"target": "webhook"})


def test_a_ledger_that_no_deployment_wrote_to_is_named_so(client: Client) -> None:
    with pytest.raises(
        errors.InvalidInput, match=r"no deployment has written its kinds\. Start a worker that.*DUECOURSE_STORE and"
    ):
        client.add(kind="report", payload={})
    assert client.add(kind="webhook", payload={"url": "https://example.com/"}).created


def test_callers_over_http_learn_no_address(ledger: EmbeddedLedger) -> None:
    with wired_with(settings=Settings(), ledger=ledger) as app:
        vars(app)["place"] = StoreLocation(URL)
        with pytest.raises(errors.InvalidInput) as caught:
            app.tasks.add(new(kind="strange"))
    assert "from the ledger, where" in str(caught.value)
    assert "h1" not in str(caught.value)


def test_own_targets_are_all_that_counts_where_there_are_any(
    ledger: EmbeddedLedger, deployed: Callable[[], None]
) -> None:
    deployed()
    with (
        wired_with(settings=Settings(targets={"bill": "lambda:Bill"}), ledger=ledger),
        pytest.raises(errors.InvalidInput, match="known kinds: bill, poll, webhook"),
    ):
        Client.from_env().add(kind="report", payload={})


def test_the_record_is_read_once_in_a_while_and_not_for_kinds_that_are_built_in(
    kinds: LedgerKinds, record: Record, passing: SimpleNamespace
) -> None:
    kinds.check("poll", shown=True)
    assert record.readings == 0
    for _ in range(5):
        kinds.check("report", shown=True)
    assert record.readings == 1
    passing.now += TRUSTED_S + 1
    kinds.check("report", shown=True)
    assert record.readings == 2


def test_the_record_is_read_again_before_a_kind_is_rejected(
    kinds: LedgerKinds, record: Record, passing: SimpleNamespace
) -> None:
    kinds.check("report", shown=True)
    record.kinds.add("bill")
    passing.now += SETTLED_S + 1
    kinds.check("bill", shown=True)
    assert record.readings == 2
    for _ in range(5):
        with pytest.raises(errors.InvalidInput):
            kinds.check("strange", shown=True)
    assert record.readings == 2, "it was read a moment ago"


def test_an_error_names_a_bounded_number_of_kinds() -> None:
    with pytest.raises(errors.InvalidInput, match=r"kind-00, .*, kind-49 and 10 more\. For a kind"):
        OwnKinds({f"kind-{n:02}" for n in range(60)}).check("strange", shown=False)
