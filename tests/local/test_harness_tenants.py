"""Whose a request is, in the harness: by its header, also where many are served at once in one process."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import urllib3

from duecourse_local.harness.options import Options, Precision
from tests.support.emulator import local_stack

pytestmark = pytest.mark.slow

TENANTS, EACH = 8, 25


@pytest.fixture(scope="module")
def api() -> Iterator[str]:
    """The URL of the API on a ledger in memory, in which nothing runs."""
    with local_stack(Options(store="memory://", tick=0, precision=Precision.TICK, parameters={})) as stack:
        yield stack.api


def test_requests_served_at_once_are_each_of_their_own_tenant_and_body(api: str) -> None:
    """Powertools keeps the request in a class: without turns, one would read another's header or body."""
    with urllib3.PoolManager(maxsize=TENANTS, retries=False, timeout=30) as http:

        def work(tenant: str) -> list[tuple[int, str]]:
            told = []
            for number in range(EACH):
                payload = {"url": f"https://{tenant}.example.com/{number}"}
                task = {"id": f"a-{number}", "kind": "webhook", "delay": 600, "payload": payload}
                key = {"Idempotency-Key": f'"{number}"', "X-Tenant": tenant}
                added = http.request("POST", f"{api}/tasks", json=task, headers=key)
                shown = http.request("GET", f"{api}/tasks/a-{number}", headers={"X-Tenant": tenant})
                told.append((added.status, shown.json()["task"]["payload"]["url"]))
            return told

        tenants = [f"tenant-{number}" for number in range(TENANTS)]
        with ThreadPoolExecutor(TENANTS) as pool:
            found = dict(zip(tenants, pool.map(work, tenants), strict=True))
    for tenant, told in found.items():
        assert told == [(201, f"https://{tenant}.example.com/{number}") for number in range(EACH)]


def test_a_name_that_cannot_be_is_refused(api: str) -> None:
    answer = urllib3.request("GET", f"{api}/tasks/a-0", headers={"X-Tenant": "a/b"})
    assert (answer.status, answer.json()["errors"][0]["field"]) == (422, "X-Tenant")
