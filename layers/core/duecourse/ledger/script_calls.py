"""Scripts on a client: keys and arguments, the server's time, repeats after a lost reply, and meanings of errors."""

import hashlib
import logging
import re
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

import redis
from redis import exceptions
from redis.backoff import ExponentialBackoff
from redis.cluster import RedisCluster
from redis.retry import Retry

from duecourse.base.times import Clock, span
from duecourse.errors import DuecourseError, OtherVersion, StoreFull, StoreMisused, StoreUnavailable
from duecourse.ledger.connect import (
    ANSWER_S,
    Client,
    drop_idle,
    execute,
    execute_pipelined,
    is_plain,
    node_of,
    refresh_slots,
)
from duecourse.ledger.keys import FIXED, Keys
from duecourse.ledger.layout import EARLIER, LATER
from duecourse.ledger.script_codec import Argument

if TYPE_CHECKING:
    from lua_linker import Linked

# The time of a server as its client knows it, and the instant until which a call to it is valid.

MARGIN_MS = 250.0
"""Time for which a call is valid after its caller has given it up: what a clock may be off, and a connection takes."""
TRUSTED_MS = 600_000.0
"""Time after the last answer with a time, after which a server is asked for it again: clocks drift."""
EPOCH_MS = 10**12
"""Least number that is taken for a time: any other first part of an answer is smaller."""


class ServerTime:
    """One server's clock beside this process's monotonic one, in milliseconds."""

    __slots__ = ("_ahead", "_least_ahead", "_observed_at")

    def __init__(self, sent: float, now: float) -> None:
        """`now` is the server's answer to TIME, which was sent at `sent` (`monotonic()`)."""
        self._ahead = now - sent
        """The server's clock minus the monotonic one; rather too much, or a call would expire too early."""
        self._observed_at = monotonic()
        self._least_ahead = now - self._observed_at
        """The same, rather too little: a time to come is not taken for one that has passed."""

    def deadline(self, for_ms: float) -> int:
        """The server's time at which a caller that waits `for_ms` from now has certainly given up."""
        return int(monotonic() + self._ahead + for_ms + MARGIN_MS)

    def now(self) -> int:
        """The server's time; at most a round trip behind, and never ahead unless its clock was set."""
        return int(monotonic() + self._least_ahead)

    def observe(self, sent: float, answer: Any) -> None:
        """Follow the server's clock, by an answer that begins with the time, as most scripts' do."""
        if type(answer) is list and answer and type(answer[0]) is int and answer[0] > EPOCH_MS:
            now = monotonic()
            # The script ran between `sent` and now: its clock is as far ahead as either end allows.
            least, most = answer[0] - now, answer[0] + 1 - sent
            self._ahead = min(max(self._ahead, least), most)
            self._least_ahead = min(max(self._least_ahead, least), most)
            self._observed_at = now

    def is_trusted(self) -> bool:
        """True if the server's last answer with a time is younger than TRUSTED_MS."""
        return monotonic() - self._observed_at < TRUSTED_MS


def clock_warning(now: float) -> str:
    """Warning where the server's time is far from this process's, "" where it is not."""
    minutes = int((now / 1000 - time.time()) / 60)
    if not minutes:
        return ""
    side = "ahead of" if minutes > 0 else "behind"
    return (
        f"CLOCKS DIFFER: the store's clock is {span(abs(minutes) * 60_000)} {side} this process's, and tasks come "
        "due by the store's. Set both by one source of time, such as NTP"
    )


def check_clock(server: redis.Redis) -> str:
    """Ask a server for its time, and return the same warning. Raises RedisError."""
    seconds, micros = server.time()
    return clock_warning(seconds * 1000 + micros / 1000)


def monotonic() -> float:
    """Milliseconds of this process's monotonic clock."""
    return time.monotonic() * 1000


# The scripts' texts: the builds of the layer and of the wheel link them, a checkout links those that it runs.

LUA = Path(__file__).parent / "lua"
"""The folder of the sources, which only a checkout has."""
LINKED = Path(__file__).parent / "linked"
"""The folder of the texts, which only a build has."""


def verbs() -> list[str]:
    """The name of every verb."""
    return sorted(path.stem for path in (LUA if LUA.is_dir() else LINKED).glob("*.lua"))


def script_text(verb: str) -> str:
    """The text of a verb as Redis runs it, with the modules that it requires."""
    return _linked(verb).script() if LUA.is_dir() else (LINKED / f"{verb}.lua").read_text()


@cache
def cached_script_text(verb: str) -> str:
    """The text of a verb as one function, for a process that keeps it and makes its modules once."""
    return _linked(verb).resident() if LUA.is_dir() else (LINKED / "resident" / f"{verb}.lua").read_text()


def _linked(verb: str) -> "Linked":
    # The linker is a build's tool beside this package; a checkout has it on its search path.
    from lua_linker import linked

    return linked(verb)


# The verbs' scripts on a client: keys and arguments, repeats after a lost reply, and the meaning of Redis's errors.

log = logging.getLogger("duecourse.ledger")

T = TypeVar("T")
Request: TypeAlias = tuple[int, Sequence[Argument]]
"""Everything that a script gets, keys first, and in front the number of its keys; behind them `Scripts.clock`, where it
is not one of READS."""

READS = frozenset({"coming_kinds", "outlook", "page", "schedules", "show", "stats", "tenant_stats", "throttle"})
"""Verbs that write nothing; any other gets the clock as its first argument, and is valid for a time."""
ONCE = frozenset({"bulk", "cancel", "claim", "replay", "unschedule"})
"""Verbs that are not sent again after a lost reply: run twice, they would lease or report something else. What a lost
claim leased is found by its nonces (regain.lua)."""
NOT_UNIQUE, UNREGISTERED, OVERRIDDEN, RESHARDED, EARLIER_VERSION, LATER_VERSION = -7, -8, -9, -10, -20, -21

CODE = re.compile(r"(?:^|-)(OOM|READONLY|MISCONF|NOREPLICAS|BUSY|LATE) ")
"""Code of an error that has no type of its own: inside a script, up to 6.2, and LATE, which is of values.lua."""
UNKNOWN = re.compile(r"unknown command", re.IGNORECASE)
"""Answer of a server before 7.0 to EVALSHA_RO; the error has no type of its own."""
HALF_WAY = re.compile(r"NOPERM|WRONGTYPE|ACL failure|can't run this command")
"""Errors of one command of a script, whose other commands may have been run; up to 6.2 they have no code there."""
ELSEWHERE = (exceptions.AskError, exceptions.TryAgainError)
"""Answers of a cluster to commands that it did not run, for the key is, or will be, elsewhere (MovedError included)."""
REDIRECTS_S = (0.0, 0.05, 0.1, 0.2, 0.4)
"""Pauses before a command that was sent elsewhere is sent again."""
IDLE_S = 5.0
"""Time without a command after which the pooled connections are dropped rather than trusted."""
ANSWER_MS = ANSWER_S * 1000
SCRIPT_MS = 10.0
"""Longest time of a script: those that are sent together are valid for longer, for they wait for each other."""
APART_S = 0.1
"""Least that the wall's clock and the monotonic one differ by after this process was frozen, or a clock was set."""
WAIT_MS = 1_000
"""Time that replicas have to take a write."""
TOUCH = """
if type(redis.pcall('HDEL', KEYS[1], '')) == 'number' then
  redis.call('HSET', KEYS[1], '', '')
  redis.call('HDEL', KEYS[1], '')
end"""
"""Script that writes to a hash and leaves it as it was. It begins with a HDEL: so it runs where memory is short."""
META = FIXED.index("meta")

AWAY = (redis.ConnectionError, redis.TimeoutError, exceptions.RedisClusterException)
UNAVAILABLE = (*AWAY, *ELSEWHERE, exceptions.ReadOnlyError, exceptions.ClusterError)
_AGAIN = Retry(ExponentialBackoff(cap=0.5, base=0.05), retries=1, supported_errors=AWAY)


class Script(NamedTuple):
    """One verb's script, by its SHA-1 as EVALSHA wants it."""

    sha: str
    text: str
    reads: bool


@cache
def load(verb: str) -> Script:
    """The script of one verb."""
    text = script_text(verb)
    script = Script(hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest(), text, verb in READS)
    _verbs[script.sha] = verb
    return script


_verbs: dict[str, str] = {}
"""The verbs of this process's scripts, by their SHA-1."""


def cached_script(sha: str) -> str | None:
    """The text of a verb's script for a process that keeps its modules, by the SHA-1 of the plain text."""
    return cached_script_text(_verbs[sha]) if sha in _verbs else None


def translate(error: Exception) -> DuecourseError:
    """One of Redis's errors as one of this product's."""
    if _is(error, exceptions.OutOfMemoryError, "OOM"):
        return StoreFull()
    if isinstance(error, UNAVAILABLE) or CODE.search(str(error)):
        return StoreUnavailable(f"The store does not answer: {error}")
    if isinstance(error, exceptions.InvalidResponse):
        return StoreMisused(f"The server at the store's address is not a Redis: {error}")
    # Redis has no code for this one.
    hint = ": a server usually has 0 to 15" if str(error).startswith("DB index is out of range") else ""
    return StoreMisused(f"The store rejected the command: {error}{hint}")


def _is(error: Exception, kind: type[Exception], code: str) -> bool:
    found = CODE.search(str(error))
    return isinstance(error, kind) or bool(found and found[1] == code)


def check_version(answer: T) -> T:
    """The answer of a script. Raises OtherVersion where its ledger's records are of another version."""
    if answer == EARLIER_VERSION:
        raise OtherVersion(f"The ledger is of an earlier version: {EARLIER}")
    if answer == LATER_VERSION:
        raise OtherVersion(f"The ledger is of a later version: {LATER}")
    return answer


def may_be_partially_applied(verb: str, error: StoreMisused) -> bool:
    """True if the server may have run a part of the script."""
    return verb not in READS and bool(HALF_WAY.search(str(error)))


class Scripts:
    """The verbs' scripts, and plain commands, on one client. Each call raises as `translate`."""

    def __init__(self, client: Client, travel: Clock | None) -> None:
        self.client = client
        self.travel = travel
        self._used_at = time.time()
        self._steady = self._used_at - time.monotonic()
        self._times: dict[str, ServerTime] = {}
        """The time of each server that scripts were sent to, by its name; "" where it is no cluster's."""
        self.outages = 0
        """Number of times a server did not answer, or was no primary any more: writes to it may be lost."""
        # redis-py would ask a cluster for the keys of such a call, at each call.
        self._reads_apart = isinstance(client, redis.Redis)
        self.in_cluster = isinstance(client, RedisCluster)

    def clock(self) -> str:
        """Time that a script is to take for the server's; "" for the server's own, with which it is sent."""
        return f"={self.travel.now()}" if self.travel else ""

    def request(self, keys: Keys, tenants: Iterable[str], arguments: Sequence[Argument], shards: int | str) -> Request:
        """Everything that a verb's script gets on one shard, of a queue of so many shards."""
        clock, declared = self.clock(), (*keys.fixed, *map(keys.due, tenants))
        return len(declared), (*declared, clock, keys.head, shards, *arguments)

    def evaluate(self, name: str, request: Request, *, replicas: int = 0) -> Any:
        """Answer of one script; with `replicas`, once so many have its writes."""
        answer = self.call(lambda: self._send(load(name), request, replicas), again=name not in ONCE)
        return check_version(answer) if isinstance(answer, int) else answer

    def now(self, key: str) -> int:
        """Time of the server that has a key, by its last answers; asked for where that is not known."""
        self._forget_times_if_frozen()
        return self.call(lambda: self._time_at((1, (key,))).now())

    def confirm(self, key: str, replicas: int) -> None:
        """Return once so many replicas have all that was written to the server of this hash until now."""
        self.call(lambda: self._evaluate(("EVAL", TOUCH, 1, key), replicas))

    def evaluate_pipelined(
        self, name: str, requests: Callable[[], Iterable[Request]], read: Callable[[int, Any], T]
    ) -> list[T]:
        """Answers of one script to several requests, each as `read` makes it of a request's place and its answer.

        While the server runs one, the answer before is read, and the next request is made and sent. All of them may be
        sent twice. Nothing is sent, and the list is empty, if the client does not know which server it will talk to.
        """
        if self.travel or not is_plain(self.client):
            return []
        script = load(name)

        def send() -> list[T]:
            commands = (("EVALSHA", script.sha, *self._valid(script, request)) for request in requests())
            return [read(place, answer) for place, answer in enumerate(execute_pipelined(self.client, commands))]

        return self.call(send)

    def evaluate_on(self, node: redis.Redis, name: str, requests: Collection[Request]) -> list[Any]:
        """Answers of one script to several requests to one server, sent together; errors of Redis among them."""
        script = load(name)

        def send() -> list[Any]:
            every = (self._valid(script, request, ANSWER_MS + SCRIPT_MS * len(requests)) for request in requests)
            commands = [(self._how(script), script.sha, *one) for one in every]
            return _send_together(node, commands, raise_on_error=False)

        answers = self.call(send)
        if any(map(is_late, answers)):
            self._times.clear()
        return answers

    def command(self, *words: Argument) -> Any:
        """Answer to one command, sent again after a lost reply."""
        return self.call(partial(self.client.execute_command, *words))

    def read(self, *commands: Sequence[Argument]) -> list[Any]:
        """Answers to several commands, a round trip a node; sent again after a lost reply."""
        return self.call(partial(_send_together, self.client, commands))

    def call(self, command: Callable[[], T], *, again: bool = True) -> T:
        """Result of a command, called again after a lost reply if `again`.

        After a long pause it goes out on fresh connections, for a frozen process's may have died unseen.
        """
        # By the wall's clock: while a process is frozen, the monotonic one may stand still.
        used_at, self._used_at = self._used_at, time.time()
        if abs(self._used_at - used_at) > IDLE_S:
            drop_idle(self.client)
            self._forget_times_if_frozen()
        try:
            try:
                return command()
            except AWAY:
                if not again:
                    raise
                self.outages += 1
                return _AGAIN.call_with_retry(command, lambda _error: None)
        except (redis.RedisError, exceptions.RedisClusterException) as error:
            self.outages += isinstance(error, AWAY)
            if _is(error, exceptions.ReadOnlyError, "READONLY"):
                drop_idle(self.client)  # the address may lead elsewhere by now
                self.outages += 1
            raise translate(error) from error

    def _forget_times_if_frozen(self) -> None:
        """Forget the time of each server if this process was frozen, or its clock was set, since they were asked."""
        steady = time.time() - time.monotonic()
        if abs(steady - self._steady) > APART_S:
            self._steady = steady
            self._times.clear()

    def _how(self, script: Script) -> str:
        """The command that runs a script; for one that writes nothing, the command that lets nothing be written."""
        return "EVALSHA_RO" if script.reads and self._reads_apart else "EVALSHA"

    def _send(self, script: Script, request: Request, replicas: int) -> Any:
        how = self._how(script)
        try:
            return self._run(how, script, request, replicas)
        except redis.ResponseError as error:
            if is_late(error):
                # Nothing was changed: a clock was set, or stood still. Once more, by the time that it is now.
                self._times.clear()
                return self._run(how, script, request, replicas)
            if how == "EVALSHA" or not (isinstance(error, exceptions.NoPermissionError) or UNKNOWN.match(str(error))):
                raise
            self._reads_apart = False
            return self._send(script, request, replicas)

    def _run(self, how: str, script: Script, request: Request, replicas: int) -> Any:
        server = None if script.reads or self.travel else self._time_at(request)
        every = _with_clock(request, server.deadline(ANSWER_MS)) if server else (request[0], *request[1])
        sent = monotonic()
        try:
            answer = self._evaluate((how, script.sha, *every), replicas)
        except exceptions.NoScriptError:
            answer = self._evaluate((how.replace("SHA", ""), script.text, *every), replicas)
        if server:
            server.observe(sent, answer)
        return answer

    def _valid(self, script: Script, request: Request, for_ms: float = ANSWER_MS) -> Sequence[Argument]:
        """A request with the time until which it is valid, where it may change anything by the server's clock."""
        if script.reads or self.travel:
            return (request[0], *request[1])
        return _with_clock(request, self._time_at(request).deadline(for_ms))

    def _time_at(self, request: Request) -> ServerTime:
        """The time of the server that a request goes to; it is asked for it where that is not known."""
        key = str(request[1][0])
        client: Any = self.client
        try:
            name = "" if isinstance(client, redis.Redis) else str(client.get_node_from_key(key).name)
            known = self._times.get(name)
            if known and known.is_trusted():
                return known
            sent = monotonic()
            seconds, micros = execute(node_of(client, key), "TIME")
        except AWAY:
            refresh_slots(client)  # as after a script: a repeat goes to the server that has taken over
            raise
        now = int(seconds) * 1000 + int(micros) / 1000
        if differs := clock_warning(now):
            log.error("%s", differs)
        self._times[name] = known = ServerTime(sent, now)  # another thread may forget it at once
        return known

    def _evaluate(self, command: Sequence[Argument], replicas: int) -> Any:
        if not replicas:
            return execute(self.client, *command)
        for pause in REDIRECTS_S:
            try:
                return self._evaluate_and_wait(command, replicas)
            except ELSEWHERE as error:
                elsewhere = error
                time.sleep(pause)
                refresh_slots(self.client)
            except (*AWAY, exceptions.ClusterError):
                refresh_slots(self.client)  # a repeat, or the next command, goes to the server that has taken over
                raise
        raise elsewhere

    def _evaluate_and_wait(self, command: Sequence[Argument], replicas: int) -> Any:
        node = node_of(self.client, str(command[3]))
        pipe = node.pipeline(transaction=False)  # WAIT speaks of its own connection's writes
        pipe.execute_command(*command)  # type: ignore[no-untyped-call]
        # The script may have found done what it is for, by a call whose replicas did not have it: that wrote elsewhere.
        pipe.eval(TOUCH, 1, _hash_of(command))
        pipe.wait(replicas, WAIT_MS)
        answer, _, got = pipe.execute()
        if int(got) < replicas:
            raise StoreUnavailable(
                f"{got} of {replicas} replicas have the change: it may have been made, send it again"
            )
        return answer


def is_late(answer: Any) -> bool:
    """True for the answer of a script that came after its caller had given it up; it has changed nothing."""
    return isinstance(answer, redis.ResponseError) and str(answer).startswith("LATE ")


def _hash_of(command: Sequence[Argument]) -> str:
    """A hash among a script's keys: a shard's `meta`, else the first. That of register is a set, which it writes."""
    count, keys = int(command[2]), command[3:]
    return str(keys[META if count > META else 0])


def _with_clock(request: Request, clock: Argument) -> Sequence[Argument]:
    """A request with another first argument."""
    count, every = request
    return (count, *every[:count], clock, *every[count + 1 :])


def _send_together(client: Client, commands: Iterable[Sequence[Argument]], *, raise_on_error: bool = True) -> list[Any]:
    # No transaction: a server short of memory rejects MULTI.
    with client.pipeline(transaction=False) as pipe:
        for words in commands:
            pipe.execute_command(*words)
        return list(pipe.execute(raise_on_error))
