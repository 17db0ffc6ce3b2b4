"""The command `keyring`: credentials of the running stack, whose secret part is no argument and is not shown."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from duecourse_local.harness.options import Options, Precision
from duecourse_local.harness.stack import Stack
from tests.support.commands import in_this_process, run
from tests.support.emulator import local_stack
from tests.support.matrix import MATRIX, in_turn

pytestmark = pytest.mark.slow

TOKEN = "a-token-of-billing"
BEARER = ("--type", "bearer", "--host", "api.example.com")


class Lit(NamedTuple):
    """A running stack, and its folder."""

    stack: Stack
    state: Path

    def keyring(self, *words: str, secret: str = "", **variables: str) -> str:
        done = in_this_process("keyring", *words, "--state", str(self.state), event=secret, **variables)
        assert (done.exit_code, done.stderr) == (0, "")
        return done.stdout

    def problem(self, *words: str, secret: str = "") -> str:
        done = in_this_process("keyring", *words, "--state", str(self.state), event=secret)
        assert done.exit_code == 2
        return done.stderr

    def secret(self, name: str) -> Any:
        manager = self.stack.session().client("secretsmanager")
        return json.loads(manager.get_secret_value(SecretId=name)["SecretString"])


@pytest.fixture(scope="module")
def lit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lit]:
    state = tmp_path_factory.mktemp("stack") / "state"
    with local_stack(Options(store="memory://", tick=0, precision=Precision.TICK, state=state)) as stack:
        yield Lit(stack, state)


def test_a_credential_is_kept_changed_listed_and_removed_and_never_shown(lit: Lit) -> None:
    name = "duecourse/auth/-/billing"
    assert lit.keyring("billing", *BEARER, secret=f"{TOKEN}\n") == f"kept in {name}\n"
    assert lit.secret(name) == {"type": "bearer", "hosts": ["api.example.com"], "token": TOKEN}
    lit.keyring("billing", *BEARER, "--host", ".example.org", secret="another-token")
    assert lit.secret(name)["token"] == "another-token"
    login = ("--type", "basic", "--set", "user=ada", "--host", "crm.example.com", "--tenant", "acme:eu")
    lit.keyring("crm", *login, secret="a password = 8")
    assert lit.secret("duecourse/auth/acme+eu/crm")["password"] == "a password = 8"
    listed = lit.keyring(COLUMNS="200")
    assert [
        word for word in ("billing", "api.example.com, .example.org", "acme:eu", "crm", "basic") if word not in listed
    ] == []
    assert "another-token" not in listed
    assert "password" not in listed
    lit.keyring("billing", "--remove")
    assert "billing" not in lit.keyring()
    lit.keyring("billing", *BEARER, secret=TOKEN)
    assert lit.secret(name)["token"] == TOKEN


def test_a_secret_that_somebody_wrote_wrongly_is_listed_with_what_is_wrong(lit: Lit) -> None:
    manager = lit.stack.session().client("secretsmanager")
    manager.create_secret(Name="duecourse/auth/-/broken", SecretString="a-bare-token")
    listed = lit.keyring(COLUMNS="200")
    assert "wrong: value: must be JSON such as" in listed
    assert "a-bare-token" not in listed


@pytest.mark.parametrize(
    ("words", "secret", "said"),
    in_turn(
        (("billing",), TOKEN, "give --type, or --remove"),
        (("billing", "--type", "bearer"), TOKEN, "hosts: "),
        (("billing", *BEARER), "short", "token: must be 8 to 8192 printable ASCII characters"),
        (("billing", *BEARER), "", "token: "),
        (("billing", *BEARER, "--set", "extra=1"), TOKEN, "extra: is not a known field"),
        (("billing", "--type", "oauth", "--host", "a.example"), TOKEN, "client_id: is required"),
        (("never", "--remove"), "", "ResourceNotFoundException"),
    ),
)
def test_what_is_wrong_is_named_and_nothing_is_kept(lit: Lit, words: tuple[str, ...], secret: str, said: str) -> None:
    problem = lit.problem(*words, secret=secret)
    assert said in problem
    assert not secret or secret not in problem


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (("a/b", *BEARER), "name"),
        (("a", *BEARER, "--tenant", "a/b"), "--tenant"),
        (("a", *BEARER, "--set", "token=x"), "--set"),
        (("a", *BEARER, "--set", "user"), "--set"),
        (("a", "--type", "magic"), "--type"),
    ],
)
def test_a_wrong_word_is_an_error_by_the_options_name(words: tuple[str, ...], option: str) -> None:
    answer = in_this_process("keyring", *words)
    assert answer.exit_code == 2
    assert option in answer.output


def test_without_a_stack_it_says_what_to_do(tmp_path: Path) -> None:
    done = run("keyring", "--state", str(tmp_path / "none"))
    assert (done.returncode, done.stderr) == (
        2,
        "no stack is up: run duecourse up, or give --remote for an AWS account\n",
    )


@MATRIX
def test_an_account_is_that_of_the_environment(lit: Lit, tmp_path: Path) -> None:
    account = {"AWS_ENDPOINT_URL": lit.stack.aws, "AWS_DEFAULT_REGION": "us-east-1"}
    keys = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "DUECOURSE_CREDENTIAL_PREFIX": "mine/"}
    done = run("keyring", "far", *BEARER, "--remote", "--state", str(tmp_path), event=TOKEN, **account, **keys)
    assert (done.returncode, done.stdout) == (0, "kept in mine/-/far\n"), done.stderr
    assert lit.secret("mine/-/far")["token"] == TOKEN
