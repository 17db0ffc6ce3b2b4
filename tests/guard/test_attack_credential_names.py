"""Names of credentials that a tenant makes up: they push no other's out of a cache, and are not looked up for ever."""

import pytest

from duecourse.api.credential_secrets import read_credential
from duecourse.base import secret_cache
from duecourse.errors import InvalidInput, SecretUnavailable
from duecourse.guard.http_types import CredentialName
from duecourse.services.secrets import KEPT_S, MISSES, MISSES_S, ManagedCredentials
from tests.support.vault import PREFIX, Vault

GOOD = {"type": "bearer", "token": "token-of-billing", "hosts": ["api.example.com"]}
FLOOD = secret_cache.MOST + 1


class Scene:
    """Credentials of a vault with the secret `billing` of two tenants, and a clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.vault = Vault()
        for tenant in ("acme", "globex"):
            self.vault.secrets[f"{PREFIX}{tenant}/billing"] = GOOD
        self._credentials = ManagedCredentials(PREFIX, read_credential, self.vault, lambda: self.now)

    def get(self, tenant: str, name: str = "billing") -> str:
        """`found`, `absent` for a name without a secret, or `later`."""
        try:
            self._credentials.get(CredentialName(tenant, name), 10.0)
        except InvalidInput:
            return "absent"
        except SecretUnavailable:
            return "later"
        return "found"

    def asked(self, tenant: str) -> int:
        return sum(name.startswith(f"{PREFIX}{tenant}/") for name in self.vault.asked)


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_a_thousand_made_up_names_of_one_tenant_push_no_credential_of_another_out(scene: Scene) -> None:
    assert scene.get("acme") == "found"
    for n in range(FLOOD):
        scene.now += 0.2  # slower than any bound on look-ups, and all within the time of the good one
        scene.get("evil", f"made-up-{n}")
    assert (scene.get("acme"), scene.asked("acme")) == ("found", 1)


def test_credentials_that_exist_push_none_of_another_tenant_out_either(scene: Scene) -> None:
    names = [f"real-{n}" for n in range(FLOOD)]
    scene.vault.secrets |= {f"{PREFIX}evil/{name}": GOOD for name in names}
    assert scene.get("acme") == "found"
    assert {scene.get("evil", name) for name in names} == {"found"}
    assert (scene.get("acme"), scene.asked("acme")) == ("found", 1)


def test_made_up_names_are_looked_up_so_often_and_wait_then(scene: Scene) -> None:
    answers = [scene.get("evil", f"made-up-{n}") for n in range(FLOOD)]
    assert answers == ["absent"] * MISSES + ["later"] * (FLOOD - MISSES)
    assert scene.asked("evil") == MISSES
    scene.now += MISSES_S
    assert scene.get("evil", "made-up-again") == "absent"


def test_another_tenant_and_a_name_that_was_right_before_are_looked_up_all_the_same(scene: Scene) -> None:
    assert scene.get("acme") == "found"
    scene.now += KEPT_S
    for n in range(MISSES):
        scene.get("acme", f"made-up-{n}")
    assert (scene.get("acme", "one-more"), scene.get("acme"), scene.get("globex")) == ("later", "found", "found")
    assert scene.vault.asked.count(f"{PREFIX}acme/billing") == 2


def test_a_name_without_a_secret_any_more_counts_as_made_up(scene: Scene) -> None:
    assert scene.get("acme") == "found"
    del scene.vault.secrets[f"{PREFIX}acme/billing"]
    scene.now += KEPT_S
    assert scene.get("acme") == "absent"
    for n in range(MISSES):
        scene.get("acme", f"made-up-{n}")
    scene.now += MISSES_S / 2
    assert scene.get("acme") == "later"
