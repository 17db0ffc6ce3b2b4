"""Quotas of a deployment: of each tenant by name and of all others, where a queue has none of its own."""

from collections.abc import Mapping
from typing import NamedTuple

from duecourse.domain.task import DEFAULT_TENANT

OTHERS = DEFAULT_TENANT
"""Name in a table of quotas for all tenants that it does not name; who has no tenant has no quota."""


class Quotas(NamedTuple):
    """Quotas of one tenant, by the names of a queue's settings; None is no quota."""

    tenant_max_pending: int | None = None
    tenant_max_bytes: int | None = None
    tenant_adds_per_minute: int | None = None
    tenant_max_schedules: int | None = None


TenantQuotas = Mapping[str, Quotas]
"""Quotas by tenant."""
NONE = Quotas()


def quotas_of(table: TenantQuotas, tenant: str) -> Quotas:
    """Quotas of one tenant."""
    return NONE if tenant == DEFAULT_TENANT else table.get(tenant) or table.get(OTHERS, NONE)


def as_text(table: TenantQuotas) -> str:
    """The table as a shard keeps it (lua/modules/settings.lua): each tenant a line; "" for none."""
    rows = {OTHERS: NONE, **table} if table else {}
    return "".join(f"\n{tenant} {_words(quotas)}" for tenant, quotas in sorted(rows.items()))


def _words(quotas: Quotas) -> str:
    # The fourth came later: without it, a line is as earlier releases write it.
    return " ".join(map(_word, quotas[:3] if quotas.tenant_max_schedules is None else quotas))


def _word(quota: int | None) -> str:
    return "-" if quota is None else str(quota)
