"""The ledger that a command acts on, found by its options: its settings, its store, its API."""

import os
import shlex
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

from duecourse import open_ledger as ledgers
from duecourse.base.masking import masked_text
from duecourse.base.times import Clock
from duecourse.errors import DuecourseError, InvalidSettings, StoreUnavailable
from duecourse.ledger.connect import Client
from duecourse.settings import PREFIX, Settings, parse

from ..errors import HarnessError
from ..harness import state
from ..harness.addresses import SCHEMES
from ..harness.environment import STORE_SECRET
from .api import ApiClient

NO_STORE = "no stack is up here and no store is named: run duecourse up, give --store, or set DUECOURSE_STORE"

LEVELDB = "leveldb://"


def ledger_settings(store: str | None, folder: Path, *, is_opened: bool = True, **given: str | None) -> Settings:
    """The settings of a ledger: at `store`, else of the stack that uses the state folder, else of this environment.

    Raises HarnessError where they are wrong, or that stack has its ledger to itself. The same where they name no store,
    unless nobody is to open it (`is_opened`).
    """
    up = state.running(folder) or {}
    if not store and str(up.get("store", "")).startswith(SCHEMES):
        raise HarnessError(f"{up['store']} is open in the running stack only: use {up['api']}")
    given |= {
        "store": store or up.get("store"),
        "seal_key": given.get("seal_key") or (state.seal_key(folder) if up else ""),
    }
    named = {PREFIX + name.upper(): value for name, value in given.items() if value}
    if given["store"]:
        named[STORE_SECRET] = ""  # an address in hand wins over a secret
    try:
        found = parse({**os.environ, **named})
    except InvalidSettings as error:
        raise HarnessError(str(error)) from error
    if is_opened and not (found.store or found.store_secret):
        raise HarnessError(NO_STORE)
    return found


@contextmanager
def open_redis(settings: Settings, elsewhere: str) -> Iterator[Client]:
    """Client of the ledger's Redis; after an interruption, the error names the same command to continue.

    Raises HarnessError for the store's errors and, in the words of `elsewhere`, for a ledger in a process or a folder.
    """
    if settings.store.startswith(SCHEMES):
        raise HarnessError(f"{settings.store} {elsewhere}")
    try:
        with ledgers.open_client(settings) as redis:
            yield redis
    except StoreUnavailable as error:
        raise HarnessError(f"{error}\nRun the same command again to continue") from error
    except DuecourseError as error:
        raise HarnessError(str(error)) from error


class OpenLedger(NamedTuple):
    """A ledger: its client, its namespace, and the clock of one in this process."""

    client: Client
    namespace: str
    clock: Clock | None = None


@contextmanager
def open_ledger(settings: Settings) -> Iterator[OpenLedger]:
    """The ledger on a Redis or in a folder. Raises as `open_redis`."""
    if not settings.store.startswith(LEVELDB):
        with open_redis(settings, "is in its process alone, and gone with it") as redis:
            yield OpenLedger(redis, settings.namespace)
        return
    from duecourse.ledger.embedded.in_process_redis import EmbeddedRedis, Server
    from duecourse.ledger.embedded.ledger import SystemClock
    from duecourse.ledger.embedded.leveldb import LevelDisk

    from ..backup.leveldb_repair import NAMESPACE

    try:
        clock = SystemClock()
        with closing(Server(clock, LevelDisk(settings.store.removeprefix(LEVELDB)))) as server:
            yield OpenLedger(EmbeddedRedis(server), NAMESPACE, clock)
    except DuecourseError as error:
        raise HarnessError(str(error)) from error


class LedgerTarget(NamedTuple):
    """The ledger that the options of a command name."""

    store: str | None
    url: str | None
    token: str | None
    namespace: str | None
    tenant: str | None
    folder: Path

    @property
    def as_options(self) -> str:
        """The same options for a line to copy, without a token and without a password of the store."""
        shown = {
            "store": self.store and masked_text(self.store),
            "url": self.url,
            "namespace": self.namespace,
            "tenant": self.tenant,
            "stack": None if self.folder == state.DEFAULT else str(self.folder),
        }
        return "".join(f" --{name} {shlex.quote(value)}" for name, value in shown.items() if value)


@contextmanager
def open_api(target: LedgerTarget) -> Iterator[ApiClient]:
    """The API at `--url`, else at `--store`, else of the stack that is up, else of DUECOURSE_STORE.

    Raises Unavailable, and HarnessError where the settings are wrong.
    """
    if target.url and target.store:
        raise HarnessError("--url and --store name two places: give one of them")
    up = None if target.url or target.store else state.running(target.folder)
    if target.url or up:
        from .remote_api import RemoteApi, stack_api

        yield stack_api(up, target) if up else RemoteApi(str(target.url), target.token, target.tenant)
        return
    from .in_process_api import open_in_process

    with open_in_process(target) as api:
        yield api
