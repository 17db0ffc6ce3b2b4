"""A function in JavaScript works tasks of its kind and settles them over HTTP, in the whole stack."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import urllib3

from duecourse_local.harness.options import PARAMETERS, Options
from tests.support.emulator import local_stack
from tests.support.needs import need_node
from tests.support.project import add_resource, copy_project
from tests.support.wait import until

PAYMENT = """
  PaymentFunction:
    Type: AWS::Serverless::Function
    Properties:
      Runtime: nodejs20.x
      Handler: index.handler
      CodeUri: {folder}
      Timeout: 30
      Environment:
        Variables:
          TASKS_URL: !GetAtt Api.ApiEndpoint
          DUECOURSE_TARGETS: ""
"""


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    need_node()
    template = copy_project(tmp_path_factory.mktemp("project"))
    add_resource(template, PAYMENT.format(folder=Path(__file__).parent / "fixtures/payment"))
    parameters = {**PARAMETERS, "Targets": '"payment": "lambda:PaymentFunction"'}
    with local_stack(Options(template=template, parameters=parameters)) as stack:
        yield stack.api


def ended(api: str, id: str, payload: Any) -> Any:
    """Add a payment, and see it once it has ended."""
    with urllib3.PoolManager() as http:
        added = http.request("POST", f"{api}/tasks", json={"id": id, "kind": "payment", "payload": payload})
        assert added.status == 201, added.data

        def look() -> Any:
            task = http.request("GET", f"{api}/tasks/{id}").json()["task"]
            return task if task["state"] in ("done", "dead") else None

        return until(look, every=0.05)


def test_a_node_function_settles_again_retry_and_done_over_http(api: str) -> None:
    task = ended(api, "pay:1", {"amount": 42})
    assert [run["outcome"] for run in task["history"]] == ["again", "retry", "done"]
    assert [run.get("detail", "") for run in task["history"]] == ["", "the bank is closed", ""]
    assert [run["run"] for run in task["history"]] == [1, 2, 3]
    assert task["result"]["paid"] == 42
    assert task["result"]["key"].startswith("pay:1:")


def test_a_node_function_drops_what_never_will_work(api: str) -> None:
    task = ended(api, "pay:2", {"forged": True})
    assert (task["state"], task["error"]) == ("dead", "the signature is forged")
