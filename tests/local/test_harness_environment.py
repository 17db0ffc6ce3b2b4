"""What a function of the harness finds in its environment, beside what the template says."""

import pytest

from duecourse.settings import parse
from duecourse_local.harness.environment import Environment
from duecourse_local.harness.functions_in_process import united_environment
from duecourse_local.harness.intrinsics import Addresses
from duecourse_local.harness.options import PARAMETERS
from duecourse_local.harness.template import Function, Template
from tests.support.template import TEMPLATE

OWN = '{"report": "lambda:ReportFunction", "poll": "lambda:Poll"}'
FUNCTIONS = Template(TEMPLATE, Addresses("http://api", "http://aws", "redis://store"), PARAMETERS).functions


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.name)
def test_targets_of_ones_own_join_the_templates_so_that_reminders_still_have_their_sender(
    function: Function,
) -> None:
    around = Environment("http://aws", "http://lambda", "memory://", {"DUECOURSE_TARGETS": OWN})
    found = parse({"DUECOURSE_TARGETS": around.settings(function)["DUECOURSE_TARGETS"]}).targets
    own = parse({"DUECOURSE_TARGETS": function.environment["DUECOURSE_TARGETS"]}).targets
    assert found == (own | {"report": "lambda:ReportFunction", "poll": "lambda:Poll"} if own else {})


def test_functions_that_are_threads_of_one_process_can_have_targets_of_ones_own() -> None:
    around = Environment("http://aws", "http://lambda", "memory://", {"DUECOURSE_TARGETS": OWN})
    found = parse({"DUECOURSE_TARGETS": united_environment(FUNCTIONS, around)["DUECOURSE_TARGETS"]}).targets
    assert found.keys() == {"reminder", "report", "poll"}


def test_the_functions_that_drain_hand_reminders_to_their_sender_by_the_template_alone() -> None:
    around = Environment("http://aws", "http://lambda", "memory://")
    draining = next(function for function in FUNCTIONS if function.name == "OnExpiredFunction")
    assert around.settings(draining)["DUECOURSE_TARGETS"] == '{"reminder": "lambda:SendReminderFunction"}'


def test_a_request_names_its_tenant_in_a_header_unless_callers_have_their_own() -> None:
    api = next(function for function in FUNCTIONS if function.routes)
    free = parse(Environment("http://aws", "http://lambda", "memory://").settings(api))
    assert (free.tenant_header, free.tenant_from) == ("X-Tenant", None)
    proved = Environment("http://aws", "http://lambda", "memory://", {"DUECOURSE_TENANT_FROM": "claim:org_id"})
    assert parse(proved.settings(api)).tenant_header == ""


def test_the_key_that_seals_is_for_the_functions_that_the_template_gives_one() -> None:
    around = Environment("http://aws", "http://lambda", "memory://", {"DUECOURSE_SEAL_KEY": "file:///a/seal.key"})
    found = {function.name: around.settings(function).get("DUECOURSE_SEAL_KEY") for function in FUNCTIONS}
    assert {name for name, key in found.items() if key == "file:///a/seal.key"} == {
        "EnqueueHttpFunction",
        "EnqueueMessageFunction",
        "OnExpiredFunction",
        "PollTickFunction",
    }
    assert set(found.values()) == {"file:///a/seal.key", None}
