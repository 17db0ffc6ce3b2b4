"""DUECOURSE_TENANT_QUOTAS: whose quotas they are, what is wrong with them, how shards and the template have them."""

import json
import re

import pytest

from duecourse.errors import InvalidSettings
from duecourse.ledger.queue import SETTINGS, Quotas, quotas_of, quotas_text
from duecourse.settings import QUOTAS_EXAMPLE, parse
from tests.support.template import environment, template

NAME = "DUECOURSE_TENANT_QUOTAS"
GIVEN = {"-": {"tenant_max_pending": 1_000, "tenant_max_bytes": 5_000}, "acme": {"tenant_max_pending": None}}


def wrong(given: object, **others: str) -> dict[str, str]:
    with pytest.raises(InvalidSettings) as caught:
        parse({NAME: given if isinstance(given, str) else json.dumps(given), **others})
    return {problem.field: problem.problem for problem in caught.value.problems}


def test_a_tenant_by_name_has_what_is_not_said_of_it_as_all_others_do() -> None:
    table = parse({NAME: json.dumps(GIVEN)}).tenant_quotas
    assert quotas_of(table, "acme") == Quotas(None, 5_000, None)
    assert quotas_of(table, "any") == Quotas(1_000, 5_000, None)
    assert quotas_of(table, "-") == Quotas(), "who has no tenant has no quota"
    assert quotas_of({"acme": Quotas(1)}, "any") == Quotas()


def test_the_names_are_those_of_a_queues_quotas() -> None:
    named = {one.name for one in SETTINGS if one.name.startswith("tenant_")}
    assert set(Quotas._fields) == named - {"tenant_max_running"}
    assert parse({NAME: QUOTAS_EXAMPLE}).tenant_quotas


def test_each_wrong_name_and_value_is_named() -> None:
    given = {"a b": {}, "acme": {"pending": 1, "tenant_max_bytes": 0}, "-": {"tenant_adds_per_minute": "1e3"}, "x": 3}
    assert wrong(given).keys() == {
        f"{NAME}.a b",
        f"{NAME}.acme.pending",
        f"{NAME}.acme.tenant_max_bytes",
        f"{NAME}.-.tenant_adds_per_minute",
        f"{NAME}.x",
    }
    assert list(wrong("[1]")) == list(wrong("{")) == [NAME]


def test_a_quota_that_leaves_a_shard_without_its_part_is_wrong() -> None:
    """Nothing could be added there, by whatever request."""
    assert wrong({"acme": {"tenant_max_pending": 7}}, DUECOURSE_SHARDS='{"wide": 8}') == {
        f"{NAME}.acme.tenant_max_pending": "must be at least 8: a queue has so many shards (DUECOURSE_SHARDS), and "
        "each gets its part"
    }


def test_a_shard_has_them_a_line_a_tenant() -> None:
    assert quotas_text({}) == ""
    assert quotas_text({"acme": Quotas(5, None, 600)}) == "\n- - - -\nacme 5 - 600"


@pytest.mark.parametrize("given", ["", QUOTAS_EXAMPLE, json.dumps(GIVEN)])
def test_what_the_template_takes_is_a_setting_that_passes(given: str) -> None:
    whole = template()
    assert re.fullmatch(whole["Parameters"]["TenantQuotas"]["AllowedPattern"], given)
    assert bool(parse({NAME: given}).tenant_quotas) == bool(given)
    assert environment("EnqueueHttpFunction")[NAME] == environment("PollTickFunction")[NAME] == {"Ref": "TenantQuotas"}
