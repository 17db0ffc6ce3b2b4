"""Parts of an App that reach outside: the ledger, functions, brokers, senders, the web and keys, by its settings."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from random import Random
from threading import RLock
from typing import TYPE_CHECKING

from duecourse import ledgers
from duecourse.domain.address import servers_of
from duecourse.domain.reminder import Channel
from duecourse.engine.kinds import Kinds
from duecourse.engine.run import Kind
from duecourse.engine.seals import Seals, sealing
from duecourse.errors import FieldError, InvalidSettings, ResultsUnavailable, SealUnavailable, TemplatesMissing
from duecourse.lazy import lazy
from duecourse.ports.calendar import Calendar
from duecourse.ports.credentials import Credentials
from duecourse.ports.http import HttpCaller
from duecourse.ports.invoker import Invoker
from duecourse.ports.publisher import Publisher
from duecourse.ports.results import Results
from duecourse.ports.seals import Wrapping
from duecourse.ports.secret import Secret
from duecourse.ports.sender import Message, Sender
from duecourse.ports.store import Store
from duecourse.ports.writer import Letter, Writer
from duecourse.settings import Settings, check_broker
from duecourse.turns import Turns

if TYPE_CHECKING:
    from duecourse.adapters.phone.numbers import Numbers
    from duecourse.domain.credential import Credential
    from duecourse.domain.egress import Egress
    from duecourse.kinds.webhook import Sign
    from duecourse.ports.seals import Cipher

NO_CIPHER = (
    "sealing credentials needs cryptography: add the seals layer to the function, or pip install duecourse[seals]"
)
ACCEPTED_WITHIN_MS = 5_000
"""Timeout of an invocation's acceptance: well within the margin in which a drain finishes."""


@dataclass(frozen=True, kw_only=True)
class Parts:
    """Parts that a test or the harness gives to an App in place of those that the settings name."""

    store: Store | None = None
    results: Results | None = None
    invoker: Invoker | None = None
    brokers: Mapping[str, Publisher] | None = None
    senders: Mapping[str, Sender] | None = None
    writer: Writer | None = None
    http: HttpCaller | None = None
    credentials: Credentials | None = None
    kinds: Mapping[str, Kind] | None = None
    wrapping: Wrapping | None = None
    caller: HttpCaller | None = None
    sign: "Sign | None" = None
    rng: Random | None = None
    asked_kinds: Kinds | None = None


NONE_GIVEN = Parts()


class Outside:
    """The parts of one configuration that reach outside it: the given ones, the others as the settings name them."""

    def __init__(self, settings: Settings, given: Parts = NONE_GIVEN) -> None:
        self.settings = settings
        self.building = RLock()  # one for all parts: parts build parts, and two locks could wait for each other
        self.given = {name: one for name, one in vars(given).items() if one is not None}
        vars(self).update(self.given)

    @lazy
    def calendar(self) -> Calendar:
        """Times of schedules; opened where one is computed, for it takes a while to load."""
        from duecourse.adapters.calendar.calendar import ZonedCalendar

        return ZonedCalendar()

    @lazy
    def store(self) -> Store:
        """The ledger."""
        return ledgers.logged(ledgers.open_store(self.settings, self.place), self.settings)

    @lazy
    def place(self) -> ledgers.Place:
        """Place of the ledger: read once where a secret names it, for the store and for the bells."""
        return ledgers.place_of(self.settings)

    @lazy
    def adds(self) -> Store:
        """The ledger for those who add tasks: it seals the credentials in them."""
        return sealing(self.store, self.seals)

    @lazy
    def seals(self) -> Seals:
        """Seals of credentials in tasks."""
        has_key = "wrapping" in vars(self) or self.settings.seal_key
        wrapping = (lambda: self.wrapping) if has_key else None
        # A ledger is opened, and cryptography is loaded, at the first seal.
        return Seals(self.settings.namespace, lambda: self.store.seal_keys(), wrapping, _aes_gcm)  # noqa: PLW0108

    @lazy
    def wrapping(self) -> Wrapping:
        """Key that wraps data keys. Raises SealUnavailable, and InvalidSettings for a file without a key."""
        key = self.settings.seal_key
        if not key.startswith("file://"):
            from duecourse.adapters.aws.kms_key import KmsKey

            return KmsKey(key, self.settings.namespace)
        with _cryptography():
            from duecourse.adapters.sealing.local_key import LocalKey
        return LocalKey.in_file(key.removeprefix("file://"), self.settings.namespace)

    @lazy
    def results(self) -> Results | None:
        """Results table, if there is one."""
        if not self.settings.results_table:
            return None
        if not find_spec("boto3"):
            problem = "needs boto3, which is not installed here: pip install 'duecourse[aws]'"
            raise InvalidSettings([FieldError("DUECOURSE_RESULTS_TABLE", problem)])
        from duecourse.adapters.aws.dynamodb_results import DynamoDbResults

        return DynamoDbResults(self.settings.results_table, self.settings.results_retention_ms)

    def results_at(self, place: str) -> Results:
        """Results table that a task names, for reading. Raises ResultsUnavailable where boto3 is missing."""
        if not find_spec("boto3"):
            raise ResultsUnavailable(
                f"the result is in the table {place} of DynamoDB: to read it, run pip install 'duecourse[aws]', and "
                "give this program credentials of AWS"
            )
        from duecourse.adapters.aws.dynamodb_results import DynamoDbResults

        return self._tables.setdefault(place, DynamoDbResults.at(place, self.settings.results_retention_ms))

    @lazy
    def _tables(self) -> dict[str, Results]:
        """Tables that tasks named, by their places: a client takes a tenth of a second to make."""
        return {}

    @lazy
    def invoker(self) -> Invoker:
        """The functions' service."""
        from duecourse.adapters.aws.lambda_invoker import LambdaInvoker

        return LambdaInvoker(ACCEPTED_WITHIN_MS)

    @lazy
    def brokers(self) -> dict[str, Publisher]:
        """The brokers that tasks are handed to, by the word before a target's colon."""
        from duecourse.adapters.amqp.publisher import AmqpPublisher
        from duecourse.adapters.aws.sqs_publisher import SqsPublisher

        return {"sqs": SqsPublisher(), "amqp": AmqpPublisher(self.settings.amqp, secret=self._broker_secret())}

    def _broker_secret(self) -> Secret | None:
        if not self.settings.amqp_secret:
            return None
        from duecourse.adapters.aws.secret import ManagedSecret

        return ManagedSecret("DUECOURSE_AMQP_SECRET", self.settings.amqp_secret, check_broker)

    @lazy
    def senders(self) -> dict[str, Sender]:
        """Senders of messages to people, by channel."""
        from duecourse.adapters.aws.senders import SesSender, SnsSender

        return {Channel.EMAIL: SesSender(self.settings.mail_from), Channel.PHONE: SnsSender(self.settings.sms_from)}

    @lazy
    def writer(self) -> Writer:
        """Renderer of reminders. Raises TemplatesMissing."""
        try:
            from duecourse.adapters.templates.writer import TemplateWriter
        except ModuleNotFoundError as error:
            raise TemplatesMissing from error
        return TemplateWriter(self.turns).write

    def write(self, letters: Iterable[Letter]) -> list[Message]:
        """Reminders written out, by what is put together only where there is one to write: Jinja2 is heavy."""
        return self.writer(letters)

    @lazy
    def http(self) -> HttpCaller:
        """Way out to the web."""
        from duecourse.adapters.http.caller import HttpOut

        given = self.settings
        store = self.place.url if given.store or given.store_secret else ""
        servers = [*servers_of(store), *servers_of(given.amqp)]
        return HttpOut(given.parallel, self.egress, at_once=given.host_calls, servers=servers)

    @lazy
    def caller(self) -> HttpCaller:
        """The same with credentials by name."""
        from duecourse.adapters.http.authorized import Authorized

        return Authorized(self.http, self.credentials)

    @lazy
    def credentials(self) -> Credentials:
        """Credentials for calls."""
        from duecourse.adapters.aws.credentials import ManagedCredentials

        def read(text: str) -> "Credential":
            from duecourse.wire.credentials import read_credential  # pydantic, for who uses one

            return read_credential(text)

        return ManagedCredentials(self.settings.credential_prefix, read)

    @lazy
    def egress(self) -> "Egress":
        """Policy of calls to the web."""
        from duecourse.domain.egress import Egress

        return Egress.of(self.settings.egress_allow)

    def reach(self, url: str, headers: Mapping[str, str]) -> str:
        """Reason why no call with these headers may go to this URL, or ""; nothing is looked up."""
        return self.egress.problem_of(url, headers)

    @lazy
    def numbers(self) -> "Numbers":
        """Rule of the numbers that SMS may go to. Raises TemplatesMissing."""
        try:
            from duecourse.adapters.phone.numbers import Numbers
        except ModuleNotFoundError as error:
            raise TemplatesMissing from error
        return Numbers(self.settings.sms_countries)

    def dial(self, number: str) -> str:
        """Reason why no SMS may go to a number, or ""; the numbers of all countries are read where one is asked for."""
        return self.numbers.problem_of(number)

    @lazy
    def sign(self) -> "Sign":
        """Signer of webhooks: by no secret, unless the settings name one."""
        from duecourse.kinds.webhook import unsigned

        if not self.settings.signing_secret:
            return unsigned
        from duecourse.adapters.aws.signing_secrets import SigningSecrets
        from duecourse.kinds.signing import Signing
        from duecourse.wire.settings.signing import read_secrets

        return Signing(SigningSecrets(self.settings.signing_secret, read_secrets))

    @lazy
    def rng(self) -> Random:
        """Source of the jitter in delays."""
        return Random()

    @lazy
    def turns(self) -> Turns:
        """Turns of what tasks compute at length."""
        return Turns()

    def now(self) -> int:
        """Time of the ledger (epoch ms)."""
        return self.store.now()


def _aes_gcm(key: bytes) -> "Cipher":
    with _cryptography():
        from duecourse.adapters.sealing.aes_gcm import AesGcm
    return AesGcm(key)


@contextmanager
def _cryptography() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        raise SealUnavailable(NO_CIPHER) from error
