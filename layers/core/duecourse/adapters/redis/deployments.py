"""Record of deployments on Redis (ports.deployments): one sorted set beside the record of shards, without TTL."""

import re
from collections.abc import Collection

from duecourse.adapters.redis.arguments import Argument
from duecourse.adapters.redis.keys import deployed_key
from duecourse.adapters.redis.scripts import Scripts
from duecourse.ports.deployments import KEPT_MS, MOST, RENEWED_MS, Deployed

MEMBER = re.compile(r"(inline|target) ([A-Za-z0-9._:@-]{1,64})|(results) ([A-Za-z0-9._:@/-]{1,300})")


class RedisDeployments:
    """The record of a namespace, beside a ledger on the same client."""

    def __init__(self, scripts: Scripts, namespace: str) -> None:
        self._scripts = scripts
        self._key = deployed_key(namespace)

    def write(self, kinds: Collection[str], handed: Collection[str], results: str = "") -> bool:
        """See Deployments."""
        entries: list[Argument] = [f"{'target' if kind in handed else 'inline'} {kind}" for kind in sorted(kinds)]
        entries += [f"results {results}"] if results else []
        arguments = (self._key, self._scripts.clock(), RENEWED_MS, KEPT_MS, *entries)
        return bool(self._scripts.evaluate("deploy", (1, arguments)))

    def read(self) -> Deployed:
        """See Deployments; an entry of another form, which another program has put there, is left out."""
        found = self._scripts.command("ZRANGE", self._key, 0, MOST - 1, "WITHSCORES")
        rows = [(member.decode(errors="replace"), int(at)) for member, at in zip(found[::2], found[1::2], strict=True)]
        known = [(*member.split(" "), at) for member, at in rows if MEMBER.fullmatch(member)]
        tables = [name for what, name, _ in known if what == "results"]
        return Deployed(
            frozenset(name for what, name, _ in known if what != "results"),
            frozenset(name for what, name, _ in known if what == "target"),
            tables[-1] if tables else "",
            known[-1][-1] if known else 0,
        )
