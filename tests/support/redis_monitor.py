"""MONITOR of a Redis: the commands sent to it, the records that each script reads, and the size of its requests."""

import re
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Thread

from tests.support.redis_server import RedisServer

END = b"the end of what is looked at"


@contextmanager
def records_read(server: RedisServer) -> Iterator[list[int]]:
    """How many records each script that is run in the block reads: whole once the block has ended."""
    found: list[int] = []
    with _watched(server, lambda lines: _read(lines, found)):
        yield found


@contextmanager
def words_said(server: RedisServer) -> Iterator[dict[str, int]]:
    """The most that any run of each script in the block asks for, by its SHA-1: whole once that has ended.

    That is the words of its commands, and the members that a scan looks at.
    """
    most: dict[str, int] = {}
    with _watched(server, lambda lines: _count(lines, most)):
        yield most


def sent_by(server: RedisServer, act: Callable[[], object]) -> list[str]:
    """The commands that reach the server while `act` runs, but those of its scripts."""
    found: list[str] = []
    with server.client() as watcher, server.client() as client, client.client() as ours, watcher.monitor() as monitor:
        act()
        ours.echo("the end")  # on a connection that was made before
        for seen in monitor.listen():
            name = seen["command"].split(" ")[0].upper()
            if name == "ECHO":
                return found
            if seen["client_type"] != "lua":
                found.append(name)
    raise AssertionError


@contextmanager
def _watched(server: RedisServer, read: Callable[[Iterator[bytes]], None]) -> Iterator[None]:
    with socket.socket(socket.AF_UNIX) as wire:
        wire.connect(str(server.socket))
        wire.sendall(b"MONITOR\r\n")
        lines = wire.makefile("rb")
        assert lines.readline() == b"+OK\r\n"
        reader = Thread(target=read, args=(lines,))
        reader.start()
        try:
            yield
        finally:
            with server.client() as client:
                client.echo(END)
            reader.join()
            lines.close()


def _count(lines: Iterator[bytes], most: dict[str, int]) -> None:
    sha, words = "", 0
    for line in lines:
        head = line[:200]
        if END in line:
            return
        if b'] "EVALSHA' in head:
            sha, words = head.split(b'"')[3].decode(), 0
        elif b" lua] " in head and sha:
            scan = re.search(rb'"[HSZ]SCAN" .*"COUNT" "(\d+)"', line)
            words += line.count(b'" "') + 1 + (int(scan[1]) if scan else 0)
            most[sha] = max(most.get(sha, 0), words)


def _read(lines: Iterator[bytes], found: list[int]) -> None:
    for line in lines:
        command = line[:200].partition(b"] ")[2]
        if END in line:
            return
        if command.startswith(b'"EVAL'):
            found.append(0)
        elif found and command.startswith((b'"HGET"', b'"HMGET"')) and b':tasks" ' in command:
            found[-1] += line.count(b'" "') - 1
