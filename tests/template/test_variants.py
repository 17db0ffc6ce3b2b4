"""The deployments in which the template is looked at: what they cover, and the settings that functions get there."""

from itertools import combinations

import pytest

from duecourse.settings import PREFIX, parse
from duecourse_local.harness.intrinsics import Addresses
from duecourse_local.harness.template import Template
from tests.support.template import TEMPLATE, template
from tests.support.variants import CHOICES, resolver, variants

ADDRESSES = Addresses("http://api", "http://aws", "redis://store")


def test_each_two_choices_of_a_deployment_are_tried_together_and_apart() -> None:
    free = [choice for choice in CHOICES if len([c for c in CHOICES if c.keys() & choice.keys()]) == 1]
    seen = {
        (str(pair), *(choice.items() <= given.items() for choice in pair))
        for given in variants()
        for pair in combinations(free, 2)
    }
    assert len(seen) == 4 * len(list(combinations(free, 2)))


@pytest.mark.parametrize("condition", template()["Conditions"])
def test_each_condition_of_the_template_is_met_in_one_deployment_and_not_in_another(condition: str) -> None:
    assert {resolver(template(), given).holds(condition) for given in variants()} == {True, False}


@pytest.mark.parametrize("given", variants())
def test_what_each_deployment_gives_its_functions_are_settings_that_pass(given: dict[str, str]) -> None:
    for function in Template(TEMPLATE, ADDRESSES, given).functions:
        own = {name: value for name, value in function.environment.items() if name.startswith(PREFIX)}
        if own["DUECOURSE_AMQP"] == ADDRESSES.store:  # the reader has one secret in place of all
            own["DUECOURSE_AMQP"] = "amqps://broker"
        assert parse(own).results_table == "ResultsTable"
