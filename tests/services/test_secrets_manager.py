"""A secret of Secrets Manager: read once, read again for a refused login, and what is said where it cannot be read."""

import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from botocore.exceptions import ClientError, ConnectTimeoutError

from duecourse.errors import InvalidSettings, StoreUnavailable
from duecourse.ledger.connect import Login
from duecourse.open_ledger import _check_server
from duecourse.services import secrets as module
from duecourse.services.secrets import ManagedSecret
from duecourse.settings import check_broker

NAME, SETTING = "duecourse/redis-url", "DUECOURSE_STORE_SECRET"
OLD, NEW = "redis://user:old%20word@host:6379/1", "redis://user:new%20word@host:6379/1"


class Manager:
    """Secrets Manager, in as far as one secret is read; an answer that is an error is raised."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []
        self._asking = threading.Lock()

    def get_secret_value(self, *, SecretId: str) -> dict[str, Any]:  # noqa: N803 - its own word
        with self._asking:
            self.asked.append(SecretId)
            answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer if isinstance(answer, dict) else {"SecretString": answer}


def secret(*answers: Any, check: Callable[[str], str] = _check_server) -> tuple[ManagedSecret, Manager]:
    manager = Manager(*answers)
    return ManagedSecret(SETTING, NAME, check, manager), manager


def refusal(code: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": "…"}}, "GetSecretValue")


def test_a_secret_is_read_at_its_first_use_and_kept() -> None:
    one, manager = secret(OLD, NEW)
    assert manager.asked == []
    assert (one.value(), one.value()) == (OLD, OLD)
    assert manager.asked == [NAME]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (refusal("ResourceNotFoundException"), "names a secret that does not exist"),
        (refusal("AccessDeniedException"), "allow secretsmanager:GetSecretValue"),
        (refusal("DecryptionFailure"), "allow kms:Decrypt"),
        (refusal("InvalidRequestException"), "marked for deletion"),
        ({"SecretBinary": b"x"}, "its value must be the URL"),
        ("", "its value must be the URL"),
        ("hunter2", "value must begin with redis://"),
        ('{"password": "hunter2"}', "value must begin with redis://"),
        ("redis://:hunter2@host:99999", "must have a port"),
        ("memory://", "must be the URL of a Redis"),
        ("leveldb:///hunter2", "must be the URL of a Redis"),
    ],
)
def test_what_stays_wrong_is_a_wrong_setting_by_its_name(answer: Any, said: str) -> None:
    one, _ = secret(answer)
    with pytest.raises(InvalidSettings) as caught:
        one.value()
    [problem] = caught.value.problems
    assert problem.field == SETTING
    assert said in problem.problem
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "answer",
    [refusal("ThrottlingException"), refusal("InternalServiceError"), ConnectTimeoutError(endpoint_url="https://sm")],
)
def test_what_may_pass_is_an_outage_and_is_tried_again_at_the_next_use(answer: Exception) -> None:
    one, _ = secret(answer, OLD)
    with pytest.raises(
        StoreUnavailable, match=r"DUECOURSE_STORE_SECRET names cannot be read\. Functions in a VPC need"
    ):
        one.value()
    assert one.value() == OLD


def test_a_refused_value_is_read_again_once_for_all_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SECRET_AGAIN_S", 0.0)
    one, manager = secret(OLD, NEW)
    one.value()
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(one.renewed, [OLD] * 8))
    assert set(found) == {NEW}
    assert len(manager.asked) == 2
    assert one.value() == NEW


def test_a_value_that_stays_wrong_is_not_read_at_each_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    one, manager = secret(OLD)
    one.value()
    assert [one.renewed(OLD) for _ in range(5)] == [None] * 5
    assert len(manager.asked) == 2
    monkeypatch.setattr(module, "SECRET_AGAIN_S", 0.0)
    manager.answers = [NEW]
    assert one.renewed(OLD) == NEW


def test_a_secret_that_cannot_be_read_again_leaves_the_refusal_as_it_was(caplog: pytest.LogCaptureFixture) -> None:
    one, _ = secret(OLD, refusal("ResourceNotFoundException"))
    one.value()
    with caplog.at_level(logging.WARNING, "duecourse.services"):
        assert one.renewed(OLD) is None
    assert one.value() == OLD
    assert "names a secret that does not exist" in caplog.text
    assert "old" not in caplog.text


def test_a_brokers_url_is_checked_as_a_brokers() -> None:
    with pytest.raises(InvalidSettings, match="must begin with amqp:// or amqps://"):
        secret(OLD, check=check_broker)[0].value()


@pytest.mark.parametrize(
    ("url", "login"),
    [
        ("redis://host", ()),
        ("redis://:a%2Fb@host", ("a/b",)),
        ("redis://user:a%20b@host", ("user", "a b")),
        ("redis+sentinel://:p@host/main", ("p",)),
        ("unix://user:p@/run/redis.sock", ("user", "p")),
    ],
)
def test_a_login_is_that_of_the_url(url: str, login: tuple[str, ...]) -> None:
    assert Login(secret(url)[0]).get_credentials() == login


def test_a_renewed_login_is_used_from_then_on() -> None:
    login = Login(secret(OLD, NEW)[0])
    assert login.renew(OLD)
    assert login.get_credentials() == ("user", "new word")
    assert login.renew(OLD), "another thread has renewed it"
    assert not login.renew(NEW)


def test_a_new_servers_password_is_not_sent_to_the_old_one(caplog: pytest.LogCaptureFixture) -> None:
    login = Login(secret(OLD, NEW.replace("@host", "@elsewhere"))[0])
    assert not login.renew(OLD)
    assert login.get_credentials() == ("user", "old word")
    assert "names another server now" in caplog.text


def test_a_secret_that_named_another_server_is_read_again_until_it_names_this_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one, manager = secret(OLD, NEW.replace("@host", "@elsewhere"))
    login = Login(one)
    assert [login.renew(OLD), login.renew(OLD)] == [False, False]
    assert len(manager.asked) == 2, "not read again at each rejection"
    monkeypatch.setattr(module, "SECRET_AGAIN_S", 0.0)
    manager.answers = [OLD]
    assert not login.renew(OLD)
    manager.answers = [NEW]
    assert login.renew(OLD)
    assert login.get_credentials() == ("user", "new word")
