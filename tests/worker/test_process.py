"""A worker's process beside a parent that dies."""

import socket
from typing import cast

import pytest

from duecourse.worker.child import READY, WorkerProcess, _stay


class Ready:
    """Worker process that hears rings at once."""

    is_faulty = False

    def wait_ready(self, _timeout_s: float) -> bool:
        return True

    def warm(self) -> None:
        """Nothing to warm."""

    def show(self) -> None:
        """Nothing to show."""


class Away(Ready):
    """Worker process whose store is away, and that is asked `asked` times."""

    def __init__(self) -> None:
        self.asked = 0

    def wait_ready(self, _timeout_s: float) -> bool:
        self.asked += 1
        assert self.asked < 3, "it would wait for its store for ever"
        return False


@pytest.mark.parametrize("sent", [b"", READY], ids=["nothing sent", "something unread"])
def test_a_process_whose_parent_died_before_it_was_ready_stops_in_order(sent: bytes) -> None:
    own, parents = socket.socketpair()
    with own:
        own.sendall(sent)
        parents.close()
        assert _stay(cast(WorkerProcess, Ready()), own) is False


def test_a_process_whose_parent_died_while_its_store_was_away_stops_in_order() -> None:
    own, parents = socket.socketpair()
    process = Away()
    with own:
        parents.close()
        assert _stay(cast(WorkerProcess, process), own) is False
    assert process.asked == 1
