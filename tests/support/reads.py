"""Looks on while a Redis works: how many records each script reads."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread

from tests.support.redis_server import RedisServer

END = b"the end of what is looked at"


@contextmanager
def records_read(server: RedisServer) -> Iterator[list[int]]:
    """How many records each script that is run in the block reads: whole once the block has ended."""
    found: list[int] = []
    with socket.socket(socket.AF_UNIX) as wire:
        wire.connect(str(server.socket))
        wire.sendall(b"MONITOR\r\n")
        lines = wire.makefile("rb")
        assert lines.readline() == b"+OK\r\n"
        reader = Thread(target=_read, args=(lines, found))
        reader.start()
        try:
            yield found
        finally:
            with server.client() as client:
                client.echo(END)
            reader.join()
            lines.close()


def _read(lines: Iterator[bytes], found: list[int]) -> None:
    for line in lines:
        command = line[:200].partition(b"] ")[2]
        if END in line:
            return
        if command.startswith(b'"EVAL'):
            found.append(0)
        elif found and command.startswith((b'"HGET"', b'"HMGET"')) and b':tasks" ' in command:
            found[-1] += line.count(b'" "') - 1
