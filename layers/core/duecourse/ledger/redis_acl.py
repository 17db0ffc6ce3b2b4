"""Login of a ledger in Redis: the ACL line that makes a user with the commands, keys and channels that it needs.

The commands of the scripts are read in their texts; the others are those of this package's files.
"""

import re
from functools import cache
from typing import NamedTuple

from duecourse.ledger import script_calls
from duecourse.ledger.bells import BellEvent
from duecourse.ledger.keys import ended_channel, shards_key
from duecourse.ledger.redis_bells import BellNames
from duecourse.ledger.watched_keys import Watchlist

USER = "duecourse"
CALLED = re.compile(r"\b(?:call|in_pieces)\('([A-Z]+)'")
"""A command in a script's text."""
SCRIPTS = ("eval", "evalsha")
READS = ("eval_ro", "evalsha_ro")
"""Commands that a server before 7.0 does not know: its ACL SETUSER rejects a line that names them."""
LEDGER = (
    "hexists", "hget", "hgetall", "hlen", "hmget", "hscan", "hset", "info", "ping", "sadd", "scan", "sismember",
    "smembers", "srem", "zmscore", "zrange", "zrangebylex", "zscore",
)  # fmt: skip
"""Commands of functions, clients and `duecourse`, beside the scripts."""
TRANSACTION = ("exec", "multi")
"""Commands around the one that is sent as a transaction: what a reshard registers."""
BELLS = ("exists", "get", "mget", "psubscribe", "publish", "role", "set", "smembers", "time")
"""Commands of a bridge and of a tick that lingers."""
WAITS = ("ping", "subscribe")
"""Those of a client that waits for the ends of tasks."""
EVENTS = ("subscribe",)
"""Those to hear key events. CONFIG is not among them: it could set anything at the server."""
REPLICAS = ("wait",)
DATABASE = ("select",)
CLUSTER = ("cluster|slots", "command")


class Rights(NamedTuple):
    """Rights of one login: of the whole product or of a bridge alone, with their server and settings."""

    namespace: str = "duecourse"
    bridge: bool = False
    database: int = 0
    events: bool = True
    replicas: bool = False
    cluster: bool = False
    reads_apart: bool = True
    """True for a server with EVALSHA_RO: Redis 7.0, and every Valkey."""

    def line(self, password: str = "PASSWORD") -> str:  # noqa: S107 - a place for one
        """The command for redis-cli; it replaces what the user could do before."""
        words = (f"+{command}" for command in self.commands())
        return " ".join(("ACL SETUSER", USER, "reset on", f">{password}", *self.keys(), *self.channels(), *words))

    def commands(self) -> list[str]:
        """Names of the commands, in order."""
        works = not self.bridge
        every = (
            (True, BELLS),
            (self.events, EVENTS),
            (works, (*LEDGER, *WAITS, *TRANSACTION, *SCRIPTS, *script_commands())),
            (works and self.reads_apart, READS),
            (works and self.replicas, REPLICAS),
            (self.database, DATABASE),
            (self.cluster, CLUSTER),
        )
        return sorted({command for wanted, commands in every if wanted for command in commands})

    def keys(self) -> list[str]:
        """Patterns of the keys: for a bridge the bells and the set of shards alone."""
        shards = shards_key(self.namespace)
        if self.bridge:
            return [f"~{self.namespace}:{{*}}:bell", f"~{shards}"]
        return [f"~{self.namespace}:*", f"~{{{shards}}}:*"]

    def channels(self) -> list[str]:
        """Patterns of the channels: a server allows PSUBSCRIBE for what is written here alone."""
        names = BellNames(self.namespace, self.database, Watchlist())
        events = (names.events[what] for what in (BellEvent.EXPIRED, BellEvent.EVICTED)) if self.events else ()
        ended = () if self.bridge else (ended_channel(self.namespace),)
        return ["resetchannels", *(f"&{name}" for name in (names.every_head, *ended, *events))]


@cache
def script_commands() -> frozenset[str]:
    """Commands that the scripts run."""
    return frozenset(
        name.lower() for verb in script_calls.verbs() for name in CALLED.findall(script_calls.script_text(verb))
    )
