"""Every saved ring, replayed through the function that answers it."""

import json

import pytest

from duecourse import errors, wiring
from duecourse.adapters.keyvalue.store import MemoryStore
from duecourse.domain.reminder import Channel, Recipient, Reminder
from tests.support.clock import START
from tests.support.functions import cases, invoke, saved
from tests.support.kinds import Outbox
from tests.support.ledger import add

NOTHING = {"claimed": 0, "done": 0, "again": 0, "retried": 0, "dead": 0, "backlog": 0, "bell_at": 0}
GOOD = {"one_bell", "many_bells", "strange_key"}


def test_every_saved_event_is_listed_here() -> None:
    assert cases("on_expired") == GOOD | {"bad_version", "bad_shape"}


@pytest.mark.parametrize("case", GOOD)
def test_a_ring_with_nothing_due_is_normal(case: str) -> None:
    assert invoke("on_expired", saved(f"on_expired/{case}")) == NOTHING


@pytest.mark.parametrize(("case", "field"), [("bad_version", "version"), ("bad_shape", "rings.0.key")])
def test_a_wrong_event_is_refused_by_field(case: str, field: str) -> None:
    with pytest.raises(errors.InvalidInput) as caught:
        invoke("on_expired", saved(f"on_expired/{case}"))
    assert field in {problem.field for problem in caught.value.problems}


def test_only_the_shards_that_rang_are_drained(store: MemoryStore, outbox: Outbox) -> None:
    people = (
        Recipient("Ada", Channel.EMAIL, "ada@example.com"),
        Recipient("Grace", Channel.EMAIL, "grace@example.com"),
    )
    wiring.reminders().add(Reminder("standup", "Stand-up", START + 60_000, (90_000,), people))
    add(store, "later", kind="webhook", delay_ms=7_000)
    quiet = NOTHING | {"bell_at": START + 7_000}
    assert invoke("on_expired", saved("on_expired/one_bell")) == quiet
    assert outbox.sent == []
    assert invoke("on_expired", saved("on_expired/many_bells")) == quiet | {"claimed": 2, "done": 2}
    assert sorted(message.to for message in outbox.sent) == ["ada@example.com", "grace@example.com"]


def test_a_strange_key_is_left_out_and_told(caplog: pytest.LogCaptureFixture) -> None:
    invoke("on_expired", saved("on_expired/strange_key"))
    [record] = [record for record in caplog.records if record.levelname == "WARNING"]
    assert record.__dict__["keys"] == ["session:4711", "duecourse:{default/0}:tasks", "other:{default/0}:bell"]


def test_a_ring_measures_what_it_did(capsys: pytest.CaptureFixture[str]) -> None:
    invoke("on_expired", saved("on_expired/one_bell"))
    [line] = [line for line in capsys.readouterr().out.splitlines() if "_aws" in line]
    assert json.loads(line).keys() == {"_aws", "service", "Claimed", "Done", "Retried", "Dead"}
