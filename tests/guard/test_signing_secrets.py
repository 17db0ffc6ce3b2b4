"""The secrets by which webhooks are signed: their shape, whose they are, and how a rotation is seen."""

import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from botocore.exceptions import ClientError

from duecourse.calls.webhook import Signing
from duecourse.errors import SecretUnavailable, WrongSignature
from duecourse.guard.http_types import HttpRequest
from duecourse.guard.signing_secrets import Secrets, new_secret, read_secrets
from duecourse.services.secrets import KEPT_S, SIGNING_AGAIN_S, SigningSecrets
from duecourse.webhooks import verify

FIRST, SECOND, THIRD = new_secret(), new_secret(), new_secret()
GONE = ClientError({"Error": {"Code": "ResourceNotFoundException", "Message": "…"}}, "GetSecretValue")
AWAY = ClientError({"Error": {"Code": "InternalServiceError", "Message": "…"}}, "GetSecretValue")


def text(**tenants: list[str]) -> str:
    return json.dumps({name.replace("all", "-"): secrets for name, secrets in tenants.items()})


class Manager:
    """Secrets Manager with one secret, whose text or error a test sets; `gate` holds its answers back."""

    def __init__(self, answer: str | Exception) -> None:
        self.answer = answer
        self.asked = 0
        self.gate = threading.Event()
        self.gate.set()
        self.waiting = threading.Event()

    def get_secret_value(self, *, SecretId: str) -> dict[str, str]:  # noqa: N803 - its own word
        assert SecretId == "duecourse/signing"
        self.asked += 1
        self.waiting.set()
        assert self.gate.wait(30)
        if isinstance(self.answer, Exception):
            raise self.answer
        return {"SecretString": self.answer}


class Clock:
    at = 1_790_000_000.0

    def __call__(self) -> float:
        return self.at


@pytest.fixture
def clock() -> Clock:
    return Clock()


def secrets_of(manager: Manager, clock: Callable[[], float]) -> SigningSecrets:
    return SigningSecrets("duecourse/signing", read_secrets, manager, clock)


def test_they_are_read_once_and_again_after_five_minutes(clock: Clock) -> None:
    manager = Manager(text(all=[FIRST]))
    known = secrets_of(manager, clock)
    assert manager.asked == 0
    assert [known()["-"] for _ in range(3)] == [(FIRST,)] * 3
    manager.answer = text(all=[SECOND, FIRST])
    clock.at += KEPT_S - 1
    assert (known()["-"], manager.asked) == ((FIRST,), 1)
    clock.at += 1
    assert (known()["-"], manager.asked) == ((SECOND, FIRST), 2)


@pytest.mark.parametrize("wrong", [AWAY, GONE, "{}", ""], ids=["away", "gone", "empty", "no text"])
def test_the_last_ones_are_used_where_they_cannot_be_read_again(
    clock: Clock, wrong: str | Exception, caplog: pytest.LogCaptureFixture
) -> None:
    manager = Manager(text(all=[FIRST]))
    known = secrets_of(manager, clock)
    known()
    manager.answer = wrong
    clock.at += KEPT_S
    assert [known()["-"] for _ in range(5)] == [(FIRST,)] * 5
    assert (manager.asked, len(caplog.records)) == (2, 1)
    manager.answer = text(all=[SECOND])
    clock.at += SIGNING_AGAIN_S
    assert known()["-"] == (SECOND,)


def test_while_one_thread_reads_again_the_others_use_the_last_ones(clock: Clock) -> None:
    manager = Manager(text(all=[FIRST]))
    known = secrets_of(manager, clock)
    known()
    clock.at += KEPT_S
    manager.answer = text(all=[SECOND])
    manager.gate.clear()
    manager.waiting.clear()
    with ThreadPoolExecutor() as threads:
        reading = threads.submit(known)
        assert manager.waiting.wait(30)
        assert known()["-"] == (FIRST,)
        manager.gate.set()
        assert reading.result(30)["-"] == (SECOND,)
    assert manager.asked == 2


def test_threads_that_wait_for_the_first_reading_share_it_and_its_failure(clock: Clock) -> None:
    manager = Manager(AWAY)
    manager.gate.clear()
    known = secrets_of(manager, clock)

    def problem() -> str:
        with pytest.raises(SecretUnavailable) as caught:
            known()
        return str(caught.value)

    with ThreadPoolExecutor(8) as threads:
        asking = [threads.submit(problem) for _ in range(8)]
        assert manager.waiting.wait(30)
        manager.gate.set()
        told = {each.result(30) for each in asking}
    assert manager.asked == 1
    assert told == {"DUECOURSE_SIGNING_SECRET: Secrets Manager answered InternalServiceError"}
    manager.answer = text(all=[FIRST])
    clock.at += SIGNING_AGAIN_S
    assert known()["-"] == (FIRST,)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("", "must be JSON such as"),
        ("whsec_alone", "must be JSON such as"),
        ("[]", "must be JSON such as"),
        ("{}", "must be JSON such as"),
        (f'{{"-": ["{FIRST}"], "-": ["{SECOND}"]}}', "has a tenant twice"),
        (text(all=[]), "a list of one or two secrets"),
        (text(all=[FIRST, SECOND, THIRD]), "a list of one or two secrets"),
        (json.dumps({"-": FIRST}), "a list of one or two secrets"),
        (json.dumps({"-": [FIRST], "acme": None}), "that of tenant 2 is none"),
        (text(all=[FIRST], acme=[SECOND[:-16]]), "malformed secret for tenant 2 of its list: each must be whsec_"),
        (json.dumps({"-": [7]}), "malformed secret"),
        (json.dumps({FIRST: ["acme"]}), "must have the name of a tenant"),
        (json.dumps({"whsec_secret": ["acme"]}), "must have the name of a tenant"),
        (json.dumps({"": [FIRST]}), "must have the name of a tenant"),
    ],
    ids=range(14),  # the secrets are new in each process, and a test's name is the same in all
)
def test_a_wrong_value_is_an_error_by_the_name_of_its_setting_and_holds_no_secret(
    clock: Clock, value: str, said: str
) -> None:
    with pytest.raises(SecretUnavailable) as caught:
        secrets_of(Manager(value), clock)()
    told = str(caught.value)
    assert told.startswith("DUECOURSE_SIGNING_SECRET: names a secret whose value ")
    assert said in told
    assert all(part not in told for part in (FIRST[6:], SECOND[6:-16], THIRD[6:], "whsec_alone", "whsec_secret"))


REQUEST = HttpRequest(
    "POST", "https://a.example/", {"webhook-id": "a:1", "webhook-timestamp": "1790000000"}, b"{}", 1, 1
)


def signed_for(tenant: str, known: Secrets) -> HttpRequest:
    return Signing(lambda: known)(tenant, REQUEST)


def verifies(request: HttpRequest, *secrets: str) -> bool:
    try:
        return bool(verify(request.body or b"", request.headers, secrets, now=lambda: 1_790_000_000))
    except WrongSignature:
        return False


def test_a_tenant_has_its_own_secrets_and_all_others_those_of_nobody() -> None:
    known = {"-": [FIRST], "acme": [SECOND, THIRD]}
    acme, others, nobody = (signed_for(tenant, known) for tenant in ("acme", "globex", "-"))
    assert [verifies(acme, one) for one in (FIRST, SECOND, THIRD)] == [False, True, True]
    assert [verifies(others, one) for one in (FIRST, SECOND, THIRD)] == [True, False, False]
    assert nobody == others


def test_a_tenant_for_which_there_is_none_is_sent_unsigned() -> None:
    assert signed_for("globex", {"acme": [FIRST]}) == REQUEST


def test_a_request_without_a_body_is_signed_as_an_empty_one() -> None:
    bare = Signing(lambda: {"-": [FIRST]})("-", REQUEST._replace(body=None))
    assert bare.body is None
    assert verifies(bare, FIRST)
