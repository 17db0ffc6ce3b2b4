"""Names for tests: a small resolver that answers by a table, and addresses in any spelling as the system does."""

import socket
from collections.abc import Mapping, Sequence
from typing import Any

from duecourse.guard.resolver import SystemResolver


class Names:
    """A `getaddrinfo` that knows a table: for each name the answers to one look-up after another, the last for ever.

    What is an address already is left to the system. `asked` are the names that were looked up.
    """

    def __init__(self, table: Mapping[str, Sequence[Sequence[str]]]) -> None:
        self._table = {name: list(answers) for name, answers in table.items()}
        self.asked: list[str] = []

    def __call__(self, host: str, port: int, family: int, kind: int, proto: int, flags: int) -> list[Any]:
        if flags & socket.AI_NUMERICHOST:
            return socket.getaddrinfo(host, port, family, kind, proto, flags)
        self.asked.append(host)
        answers = self._table.get(host.removesuffix("."))
        if answers is None:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        addresses = answers.pop(0) if len(answers) > 1 else answers[0]
        return [(socket.AF_INET6 if ":" in one else socket.AF_INET, kind, 6, "", (one, port)) for one in addresses]

    @property
    def resolver(self) -> SystemResolver:
        """The product's own resolver over this table."""
        return SystemResolver(self)
