"""Settings from the environment: the names are the fields with the prefix `DUECOURSE_`.

To add a setting, add its field with its reader and a description (`Annotated[type, reader, description] = default`).
It needs a parameter in `template.yaml` if a deployment sets it. If a client obeys it, its name belongs to
ClientSettings of `client/keyword_settings.py`. If the bridge does, it belongs to BridgeTask of `template.yaml`, and to
the help of `bridge/__main__.py`. An argument of Bridge is given where one is made: there, in `ringing/linger.py`, and
in `functions_in_process.py` of the harness; and in `worker/child.py`, if workers obey it. Then `make reference`.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Annotated, Any, NamedTuple

from duecourse.api.authorization import (
    ARN,
    EVERY,
    NO_GRANT,
    Access,
    ClaimRule,
    Grant,
    Role,
    TableRule,
    canonical_arn,
    is_session,
)
from duecourse.base.hints import UNKNOWN, near_name, nearest, unknown_field
from duecourse.base.json_text import Json
from duecourse.base.times import DAY_MS
from duecourse.base.variables import (
    NAME,
    WRONG_NAME,
    duration,
    json_such_as,
    number,
    off_or_duration,
    on_or_off,
    problems_at,
    table_of,
    written_as,
)
from duecourse.errors import FieldError, InvalidInput, InvalidSettings, bounded
from duecourse.ledger.address import WITHOUT_BELLS, check_servers, check_store, near_url, split
from duecourse.ledger.api_query import KIND as POLL
from duecourse.ledger.api_query import LEAST_INTERVAL_MS, MIN_INTERVAL_MS, QUEUE_PREFIX
from duecourse.ledger.queue import OTHERS, QueueSettings, Quotas
from duecourse.ledger.reminder import MAX_TASKS
from duecourse.ledger.sharding import MAX_SHARDS
from duecourse.ledger.task import RESERVED
from duecourse.ledger.watched_keys import Watch

# DUECOURSE_TENANT_FROM, read without pydantic: `claim:<name>`, or `principals:` and a JSON object.

CLAIM, PRINCIPALS = "claim:", "principals:"
CLAIM_NAME = re.compile(r"[!-~]{1,128}")
PRINCIPAL = re.compile(r"arn:aws[a-z-]*:(iam|sts)::\d{12}:[!-)+-~]{1,600}")
SUBJECT = re.compile(r"[!-)+-~]{1,255}")
ACCESS_EXAMPLE = (
    '{"arn:aws:iam::123456789012:role/shop": "acme", "arn:aws:iam::123456789012:role/ops": {"roles": ["operator"]}}'
)
FIELDS = {"tenant", "roles"}
WORDS = ", ".join(Role)


def read_access(text: str) -> Access:
    """The rule in a text. Raises ValueError, or InvalidInput that names the wrong principals."""
    if text.startswith(CLAIM):
        return _claim(text.removeprefix(CLAIM))
    if text.startswith(PRINCIPALS):
        return json_such_as(PRINCIPALS + ACCESS_EXAMPLE, _table)(text.removeprefix(PRINCIPALS))
    raise ValueError(f"must be {CLAIM}<name of a claim>, or {PRINCIPALS}{ACCESS_EXAMPLE}")


def _claim(name: str) -> ClaimRule:
    if not CLAIM_NAME.fullmatch(name):
        raise ValueError(f"must name a claim of the token, such as {CLAIM}org_id")
    return ClaimRule(name)


def _table(value: Json) -> TableRule:
    if not isinstance(value, dict) or not value:
        raise ValueError(f"must be {PRINCIPALS} and a JSON object with at least one principal")
    grants, problems = dict[str, Grant](), list[FieldError]()
    for name, given in value.items():
        try:
            known = _name(name)
            if known in grants:
                raise ValueError("names the same role as an earlier one")  # noqa: TRY301 - beside the readers' own
            grants[known] = _grant(given)
        except (ValueError, InvalidInput) as error:
            problems += problems_at(name, error)
    if problems:
        raise InvalidInput(problems)
    return TableRule(grants)


def _name(name: str) -> str:
    if name == EVERY:
        return name
    if is_session(name):
        raise ValueError("is a session, whose name its caller chooses: give the role's own ARN, arn:aws:iam::…")
    if not (PRINCIPAL if name.startswith(ARN) else SUBJECT).fullmatch(name):
        raise ValueError(f"must be the ARN of a role or user, the subject of a token, or {EVERY} for all others")
    return canonical_arn(name)


def _grant(value: Json) -> Grant:
    if isinstance(value, str):
        return Grant(_tenant(value), frozenset({Role.CALLER}))
    if not isinstance(value, dict):
        raise ValueError('must be a tenant, or an object such as {"tenant": "acme", "roles": ["caller"]}')  # noqa: TRY004
    unknown = [FieldError(str(name), unknown_field(name, FIELDS)) for name in value if name not in FIELDS]
    if unknown:
        raise InvalidInput(unknown)
    roles = _roles(value.get("roles", [Role.CALLER]))
    if "tenant" not in value and Role.OPERATOR not in roles:
        raise InvalidInput([FieldError("tenant", f"is required, unless the roles have {Role.OPERATOR}")])
    return Grant(_tenant(value["tenant"]) if "tenant" in value else NO_GRANT.tenant, roles)


def _roles(value: Json) -> frozenset[Role]:
    unknown = [word for word in value if word not in list(Role)] if isinstance(value, list) else []
    if not isinstance(value, list) or not value or unknown:
        near = near_name(unknown[0], Role) if unknown else ""
        raise InvalidInput([FieldError("roles", f"must be a list of at least one of: {WORDS}{near}")])
    return frozenset(map(Role, value))


def _tenant(value: Json) -> str:
    if not isinstance(value, str) or (value != EVERY and not NAME.fullmatch(value)):
        raise InvalidInput([FieldError("tenant", f"{WRONG_NAME}, or {EVERY} for any")])
    return value


# DUECOURSE_TENANT_QUOTAS, read without pydantic: the quotas of each tenant by name, and with `-` of all others.

QUOTAS_EXAMPLE = (
    '{"-": {"tenant_max_pending": 10000}, "acme": {"tenant_max_pending": 100000, "tenant_max_bytes": null}}'
)


def read_quotas(value: Json) -> dict[str, Quotas]:
    """The table. Raises ValueError, or InvalidInput that names what is wrong; a tenant has what it lacks of `-`."""
    tables = table_of(_read_fields)(value)
    others = tables.get(OTHERS, {})
    return {tenant: Quotas(**{**others, **fields}) for tenant, fields in tables.items()}


def _read_fields(value: Json) -> dict[str, int | None]:
    if not isinstance(value, dict):
        raise ValueError("must be a JSON object")  # noqa: TRY004 - a wrong value, to its reader
    found, problems = dict[str, int | None](), list[FieldError]()
    for name, one in value.items():
        try:
            found[name] = _reader(name)(one)
        except ValueError as error:
            problems += problems_at(name, error)
    if problems:
        raise InvalidInput(problems)
    return found


def _reader(name: str) -> Callable[[Json], int | None]:
    if name not in Quotas._fields:
        raise ValueError(f"must be one of {', '.join(Quotas._fields)}{near_name(name, Quotas._fields)}")
    [about] = QueueSettings.__annotations__[name].__metadata__
    read = number(about.low, about.high)
    return lambda value: None if value is None else read(value)


# DUECOURSE_TARGETS and DUECOURSE_DEAD_TARGET, read without pydantic: the target of each kind, and of dead tasks.

BUILT_IN = ("poll", "webhook", "reminder")
"""Kinds that duecourse works itself."""
TARGET = re.compile(
    r"inline|worker|lambda:[A-Za-z0-9_.:-]{1,170}|sqs:([A-Za-z0-9_-]{1,75}(\.fifo)?|https?://[!-~]{1,500})|amqp:[!-~]{1,255}"
)


def read_dead_target(value: str) -> str:
    """The target of notifications of dead tasks, which work for no function. Raises ValueError."""
    if value in {"inline", "worker"}:
        problem = f"{value} cannot receive notifications of dead tasks"
        raise ValueError(f"must be lambda:<function>, sqs:<queue> or amqp:<queue>: {problem}")
    return _target(value)


def read_targets(table: Json) -> dict[str, str]:
    """The target of each kind. Raises ValueError, or InvalidInput that names the wrong kinds."""
    targets = table_of(_target)(table)
    unknown = [kind for kind, target in targets.items() if target == "inline" and kind not in BUILT_IN]
    if unknown:
        raise ValueError(f"only {', '.join(BUILT_IN)} can be inline: give {', '.join(unknown)} another target")
    reserved = [kind for kind in targets if kind.startswith(RESERVED)]
    if reserved:
        raise ValueError(f"{RESERVED}… is reserved for completion notifications: rename {', '.join(reserved)}")
    if targets.get(POLL, "").startswith(("sqs:", "amqp:")):
        problem = "must be inline or lambda:<function>: a broker's confirm would count as the answer"
        raise InvalidInput([FieldError(POLL, problem)])
    return targets


def _target(value: Json) -> str:
    if not isinstance(value, str):
        raise ValueError("must be text")  # noqa: TRY004 - a wrong value, to its reader
    if not TARGET.fullmatch(value):
        raise ValueError("must be inline, worker, lambda:<function>, sqs:<queue> or amqp:<queue>")
    return value


# All settings. This module works without pydantic, which every function would load for it at each cold start.
# DUECOURSE_WATCH alone, if it is set, holds the fields of a request, and is read as one.

PREFIX = "DUECOURSE_"
SMS_FROM = re.compile(r"\+[1-9]\d{6,14}|\d{5,6}|(?=.*[A-Za-z])[A-Za-z0-9]{1,11}", re.ASCII)
MEANINGFUL_WHEN_EMPTY = {"warm"}
"""Settings whose empty value means something: off."""
NAMESPACE = re.compile(r"[A-Za-z0-9._-]{1,64}")
SEAL_KEY = re.compile(r"(?s:file:///.+)|arn:[a-z-]+:kms:[!-~]+|alias/[A-Za-z0-9/_-]{1,250}|(mrk-)?[0-9a-f-]{32,36}")
HEADER = re.compile(r"[A-Za-z0-9-]{1,64}")
BASE_PATH = re.compile(r"(/[A-Za-z0-9._~-]{1,64}){1,8}")
OPEN, CLOSED = "open", "closed"
COUNTRIES = re.compile(r"\s*[A-Z]{2}\s*(,\s*[A-Z]{2}\s*)*")
name_of_secret = written_as(
    re.compile(r"(?!.*://)[A-Za-z0-9/_+=.@:-]{1,2048}"),
    "must be the name or ARN of a secret, and not its value: 1 to 2048 characters of A-Z a-z 0-9 / _ + = . @ : -",
)
INSTEAD_OF = {"STORE_SECRET": "STORE", "AMQP_SECRET": "AMQP"}
"""Settings that take the place of others."""
NO_STORE = "is required: name the store by its URL, such as redis://127.0.0.1:6379/0"
DEFAULT_LEASE_MS = 90_000
"""Longer than the longest timeout of a function in the template, whose parameter has the same default."""


def check_broker(url: str) -> str:
    """`url`, of a RabbitMQ. Raises ValueError, with nothing of it in the text."""
    if not url.startswith(("amqp://", "amqps://")):
        raise ValueError("must begin with amqp:// or amqps://")
    check_servers(url)
    parts = split(url)
    if not parts.hosts:
        raise ValueError("must name a host: amqps://user:password@host")
    user, colon, _ = (parts.login or "").partition(":")
    if user and not colon:
        raise ValueError("must have a password beside its user: amqps://user:password@host")
    return url


def _url(check: Callable[[str], str], scheme: str, path: str = "") -> Callable[[str], str]:
    """Reader of a URL that `check` takes; its error names the right form of a near one."""

    def read(url: str) -> str:
        try:
            return check(url)
        except ValueError as error:
            raise ValueError(f"{error}{near_url(url, scheme, path, check)}") from None

    return read


def _egress_allow(text: str) -> str:
    from duecourse.guard.egress import Egress  # for those who list something

    Egress.of(text)
    return text


def _countries(text: str) -> tuple[str, ...]:
    if not COUNTRIES.fullmatch(text):
        raise ValueError("must be countries by their ISO codes, two capital letters each, such as AT,DE,CH")
    return tuple(one.strip() for one in text.split(","))


def _watches(entries: Json) -> Sequence[Watch]:
    from duecourse.api.watched_keys import read_watches

    return read_watches(entries)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings, from environment variables: of each its type, what reads its text, and its description.

    Durations are texts such as `5m`, ISO 8601 or seconds, kept as milliseconds (`…_ms`).
    """

    store: Annotated[
        str,
        _url(check_store, "redis", "/0"),
        "URL of the store: redis://, rediss://, unix://, redis-cluster://, rediss-cluster://, "
        "redis+sentinel://, leveldb:///absolute/path or memory://. Required, unless DUECOURSE_STORE_SECRET is set.",
    ] = ""
    store_secret: Annotated[
        str,
        name_of_secret,
        "Name or ARN of the Secrets Manager secret with the URL of the store, instead of DUECOURSE_STORE. "
        "Each process reads it at its first use, and again after a rejected login.",
    ] = ""
    shards: Annotated[
        dict[str, int],
        json_such_as('{"default": 8}', table_of(number(1, MAX_SHARDS))),
        "Number of shards for each queue that has more than one, as JSON; limits are divided among them.",
    ] = field(default_factory=dict)
    namespace: Annotated[
        str, written_as(NAMESPACE, "must be 1 to 64 characters of A-Z a-z 0-9 . _ -"), "Prefix of every key in Redis."
    ] = "duecourse"
    targets: Annotated[
        dict[str, str],
        json_such_as('{"report": "lambda:ReportFunction"}', read_targets),
        "Target of each kind, as JSON: inline, worker, lambda:<function>, sqs:<queue or URL> or amqp:<queue>.",
    ] = field(default_factory=dict)
    dead_target: Annotated[
        str,
        read_dead_target,
        "Target that receives a notification for each dead task: lambda:<function>, sqs:<queue or "
        "URL> or amqp:<queue>. Give all processes the same value.",
    ] = ""
    amqp: Annotated[
        str, _url(check_broker, "amqp"), "URL of the RabbitMQ broker for amqp: targets: amqp:// or amqps://."
    ] = ""
    amqp_secret: Annotated[
        str,
        name_of_secret,
        "Name or ARN of the Secrets Manager secret with the URL of the broker, instead of DUECOURSE_AMQP. "
        "Each process reads it at its first use, and again after a rejected login.",
    ] = ""
    parallel: Annotated[
        int, number(1, 256), "Maximum number of tasks that one drain runs at the same time, 1 to 256."
    ] = 16
    query_parallel: Annotated[
        int,
        number(1, 256),
        "Maximum number of concurrent queries to one host, 1 to 256, unless the host's queue sets another limit.",
    ] = 4
    lease_ms: Annotated[
        int,
        duration(1_000),
        "Length of an inline task's lease, at least PT1S; longer than the timeout of each function that claims tasks.",
    ] = DEFAULT_LEASE_MS
    delivery_lease_ms: Annotated[
        int,
        duration(1_000),
        "Time that a function has to begin a task handed to it, at least PT1S. Longer than the "
        "maximum age of its events plus its timeout.",
    ] = 300_000
    outstanding: Annotated[
        int,
        number(1, 10_000),
        "Maximum number of tasks of one shard that a function has and has not begun, 1 to 10000.",
    ] = 100
    margin_ms: Annotated[
        int,
        duration(),
        "Time before its own timeout at which a function stops claiming tasks; longer than any inline task takes.",
    ] = 25_000
    http_timeout_ms: Annotated[int, duration(1), "Timeout of one request of a webhook or poll that sets none."] = 10_000
    egress_allow: Annotated[
        str,
        _egress_allow,
        "Exceptions to the rule that polls, webhooks, queries and notifications reach public addresses alone. Hosts, "
        "`.suffixes`, addresses and networks, separated by commas, each with an optional `:port`.",
    ] = ""
    host_calls: Annotated[
        int,
        number(1, 256),
        "Maximum number of concurrent calls of one process to one address and port, 1 to 256. A task beyond it is put "
        "off for up to a second, and no attempt is spent.",
    ] = 50
    poll_interval_ms: Annotated[
        int,
        duration(MIN_INTERVAL_MS),
        "Minimum interval of polls and queries, at least PT0.1S. A shorter one is rejected with 422.",
    ] = LEAST_INTERVAL_MS
    reminder_messages: Annotated[
        int, number(1, MAX_TASKS), "Maximum number of messages of one reminder, 1 to 1000; more are rejected with 422."
    ] = 100
    credential_prefix: Annotated[
        str,
        written_as(
            re.compile(r"[A-Za-z0-9/_+=.@-]{0,127}[A-Za-z0-9]/"),
            "must end with / after a letter or digit: 2 to 129 characters of A-Z a-z 0-9 / _ + = . @ -",
        ),
        "Prefix of the names of Secrets Manager secrets with credentials for calls. The credential `billing` of the "
        "tenant `acme` is in the secret `duecourse/auth/acme/billing`; callers without a tenant use the tenant `-`.",
    ] = "duecourse/auth/"
    seal_key: Annotated[
        str,
        written_as(
            SEAL_KEY, "must be the ARN, the id or the alias/… of a KMS key, or file:///absolute/path of a local key"
        ),
        "KMS key (ARN, id or alias/…) that seals credentials in tasks, or file:///absolute/path of a local key. "
        "Empty: tasks with credentials are rejected.",
    ] = ""
    signing_secret: Annotated[
        str,
        name_of_secret,
        "Name or ARN of the Secrets Manager secret by which webhooks are signed. The value is JSON: one or two whsec_ "
        "secrets for each tenant, and with - for all others. Each process reads the secret again after five minutes. "
        "Empty: unsigned.",
    ] = ""
    retention_ms: Annotated[int, duration(), "Time for which a finished task is kept."] = DAY_MS
    dead_retention_ms: Annotated[
        int, duration(), "Time for which a dead task is kept, counted from the first tick that knows this setting."
    ] = 30 * DAY_MS
    results_table: Annotated[
        str, str, "Name of the DynamoDB table for results. Empty: results are kept in the store, for the retention."
    ] = ""
    results_retention_ms: Annotated[int, duration(), "Time for which the results table keeps a result."] = 30 * DAY_MS
    mail_from: Annotated[str, str, "Sender address of reminders, verified in SES."] = ""
    tenant_from: Annotated[
        Access | None,
        read_access,
        "Rule for the tenant and the roles of each caller of the HTTP API. Either claim:<name>, a claim of a JWT, "
        "or principals:<JSON>, a table of callers. Empty: one tenant, and every caller may do everything.",
    ] = None
    tenant_header: Annotated[
        str,
        written_as(HEADER, "must be 1 to 64 characters of A-Z a-z 0-9 -"),
        "Header that names the tenant of a request; for local stacks only, since callers choose its value.",
    ] = ""
    load_balancer: Annotated[
        str,
        written_as(re.compile(f"{OPEN}|{CLOSED}"), f"must be {OPEN} or {CLOSED}"),
        "Requests through an Application Load Balancer, which verifies no caller: open or closed. Open: each client of "
        "the load balancer may do everything. Closed: they are answered with 403, but for `/health` and the docs.",
    ] = CLOSED
    base_path: Annotated[
        str,
        written_as(BASE_PATH, "must be a path without a slash at its end, such as /jobs"),
        "Path before those of the HTTP API, such as /jobs, behind a gateway whose one route takes every path.",
    ] = ""
    tenant_quotas: Annotated[
        dict[str, Quotas],
        json_such_as(QUOTAS_EXAMPLE, read_quotas),
        "Quotas of each tenant by name, and with - of all others, as JSON. A quota holds in each queue that has "
        "none of its own. `tenant_max_bytes` also bounds the answers that Idempotency-Keys keep.",
    ] = field(default_factory=dict)
    tenant_max_queues: Annotated[
        int,
        number(0, 10_000),
        "Quota of each tenant: maximum number of queues that it may use by adding tasks or queries, "
        "`default` and `reminders` aside; 0 for no quota.",
    ] = 0
    tenant_max_queries: Annotated[
        int,
        number(0, 1_000),
        "Maximum number of requests of each tenant that wait for the call of a query, 0 to 1000. Beyond it, a query is "
        "answered with 202 at once. 0: no maximum; callers without a tenant have none.",
    ] = 10
    sms_from: Annotated[
        str,
        written_as(
            SMS_FROM, "must be a number such as +436641234567, or 1 to 11 letters and digits, a letter among them"
        ),
        "Sender of SMS: your number in SNS (+436641234567) or a sender name (Duecourse).",
    ] = ""
    sms_countries: Annotated[
        tuple[str, ...],
        _countries,
        "Countries that SMS may go to, by ISO codes separated by commas, such as AT,DE. Empty: all. Premium-rate "
        "numbers are always rejected.",
    ] = ()
    wait: Annotated[
        int,
        number(0, 10),
        "Number of replicas that must have an add, a move, a cancel, a replay or a queue's settings "
        "before the request succeeds, 0 to 10.",
    ] = 0
    events: Annotated[
        str,
        on_or_off,
        "Use of Redis's key event notifications: on, or off for PUBLISH and duecourse's own timer alone.",
    ] = "on"
    tick_linger_ms: Annotated[
        int,
        duration(),
        "Time for which each tick lingers, from its start, to serve rings itself; 0 leaves that to a bridge.",
    ] = 0
    watch: Annotated[
        Sequence[Watch],
        json_such_as('[{"pattern": "send_message-{user}-{type}", "kind": "report"}]', _watches),
        "Keys of other programs whose expiry becomes a task, as JSON: pattern, kind, payload, window (PT1S), queue.",
    ] = ()
    log_tasks: Annotated[
        str,
        on_or_off,
        "Write one log line for each task that is added, claimed, settled, moved, cancelled or replayed: on or off. "
        "Occurrences that schedules add, and tasks deleted or cancelled many at once, have no line.",
    ] = "off"
    on_expired_function: Annotated[str, str, "Name of the function that the bridge invokes."] = "on_expired"
    bridge_in_flight: Annotated[
        int, number(1, 64), "Maximum number of concurrent invocations by the bridge, 1 to 64."
    ] = 4
    warm_ms: Annotated[
        int,
        off_or_duration,
        "Time before a bell at which functions that were idle are warmed; an empty value turns that off.",
    ] = 10_000
    warm_idle_ms: Annotated[
        int, duration(1_000), "Time without an invocation after which a function counts as idle."
    ] = 5 * 60_000

    def check_names_store(self) -> None:
        """Raise InvalidSettings where no store is named: the Redis that happens to be on this machine is not meant."""
        if not (self.store or self.store_secret):
            raise InvalidSettings([FieldError("DUECOURSE_STORE", NO_STORE)])

    @property
    def opens_load_balancer(self) -> bool:
        """True where each client of a load balancer may do everything."""
        return self.load_balancer == OPEN

    @property
    def are_tenants_apart(self) -> bool:
        """True where callers of the HTTP API have tenants of their own."""
        return bool(self.tenant_from or self.tenant_header)


class Variable(NamedTuple):
    """One setting: the variable that says it, its field here, its reader, description and default."""

    name: str
    field: str
    read: Callable[[str], Any]
    description: str
    default: Any


@cache
def variables() -> list[Variable]:
    """Every setting, in the order of the fields."""
    usual, found = Settings(), list[Variable]()
    for field_name, kind in Settings.__annotations__.items():
        read, description = kind.__metadata__
        name = PREFIX + field_name.removesuffix("_ms").upper()
        found.append(Variable(name, field_name, read, description, getattr(usual, field_name)))
    return found


def parse(environ: Mapping[str, str]) -> Settings:
    """Settings in `environ`; an empty variable is unset, except MEANINGFUL_WHEN_EMPTY. Raises InvalidSettings."""
    named = {k[len(PREFIX) :].lower(): v for k, v in environ.items() if k.startswith(PREFIX)}
    given = {PREFIX + name.upper(): value for name, value in named.items() if value or name in MEANINGFUL_WHEN_EMPTY}
    found, problems = dict[str, Any](), list(_both_given(given))
    for one in variables():
        if one.name in given:
            try:
                found[one.field] = one.read(given.pop(one.name))
            except (ValueError, InvalidInput) as error:
                problems += problems_at(one.name, error)
    problems += [FieldError(name, _unknown(name)) for name in given]
    settings = Settings(**found)
    problems = problems or [FieldError(PREFIX + name, problem) for name, problem in _conflicts(settings)]
    if problems:
        raise InvalidSettings(bounded(problems))
    return settings


def _unknown(name: str) -> str:
    # Without the prefix: it would make each name like every other.
    near = nearest(name.removeprefix(PREFIX), (one.name.removeprefix(PREFIX) for one in variables()))
    return f"{UNKNOWN}: {PREFIX}{near}?" if near else UNKNOWN


def _both_given(given: Mapping[str, str]) -> Iterator[FieldError]:
    for name, other in INSTEAD_OF.items():
        if {PREFIX + name, PREFIX + other} <= given.keys():
            yield FieldError(PREFIX + name, f"takes the place of {PREFIX + other}: leave one of them out")


def _conflicts(given: Settings) -> Iterator[tuple[str, str]]:
    """The settings that are right by themselves, and wrong beside others: their names, and what is wrong."""
    named = {"TARGETS": list(given.targets.values()), "DEAD_TARGET": [given.dead_target]}
    asking = [PREFIX + name for name, targets in named.items() if any(one.startswith("amqp:") for one in targets)]
    if asking and not (given.amqp or given.amqp_secret):
        yield "AMQP", f"is required because {asking[0]} names an amqp:<queue>"
    if any(name.startswith(QUEUE_PREFIX) and count > given.query_parallel for name, count in given.shards.items()):
        yield "SHARDS", f"must give {QUEUE_PREFIX}… no more shards than DUECOURSE_QUERY_PARALLEL: each gets its part"
    yield from _quota_conflicts(given)
    if given.tenant_from and given.tenant_header:
        yield "TENANT_HEADER", "must be empty beside DUECOURSE_TENANT_FROM: no caller chooses its own tenant"
    if given.tenant_from and given.opens_load_balancer:
        yield "LOAD_BALANCER", "must be closed beside DUECOURSE_TENANT_FROM: a load balancer names no caller"
    if given.warm_ms >= given.warm_idle_ms:
        yield "WARM", "must be shorter than DUECOURSE_WARM_IDLE"
    if given.watch:
        yield from _watch_conflicts(given)


def _quota_conflicts(given: Settings) -> Iterator[tuple[str, str]]:
    most = max(given.shards.values(), default=1)
    problem = f"must be at least {most}: a queue has so many shards (DUECOURSE_SHARDS), and each gets its part"
    for tenant, quotas in given.tenant_quotas.items():
        for name, quota in quotas._asdict().items():
            if quota is not None and quota < most:
                yield f"TENANT_QUOTAS.{tenant}.{name}", problem


def _watch_conflicts(given: Settings) -> Iterator[tuple[str, str]]:
    if split(given.store).scheme in WITHOUT_BELLS:
        yield "WATCH", "requires a Redis as DUECOURSE_STORE: no other program sets keys in this store"
    if given.events == "off":
        yield "WATCH", "requires DUECOURSE_EVENTS=on: only key events announce that a key expired"
    ours, known = f"{given.namespace}:".encode(), set[str]()
    for at, one in enumerate(given.watch):
        pattern, window = f"WATCH.{at}.pattern", f"WATCH.{at}.window"
        if one.pattern.prefix.startswith(ours) or ours.startswith(one.pattern.prefix):
            yield (
                pattern,
                f"would match duecourse's own keys, which begin with {ours.decode()}: choose another beginning",
            )
        if one.pattern.text in known:
            yield pattern, "repeats an earlier pattern: only the first one would count"
        if one.window_ms > given.retention_ms:
            yield window, "is longer than DUECOURSE_RETENTION: by then the task that it is compared with is forgotten"
        known.add(one.pattern.text)
