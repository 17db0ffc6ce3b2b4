"""How due tasks are leased: tenants with ripe work take turns, each a quantum, within the queue's limits."""

import secrets
from math import ceil
from typing import NamedTuple

from duecourse.adapters.keyvalue import transitions, verbs
from duecourse.adapters.keyvalue.held import Held
from duecourse.adapters.keyvalue.ledger import Ledger
from duecourse.domain.history import Door
from duecourse.domain.task import Status, Task
from duecourse.ports.store import Claim, Deliveries, Delivery

BURY = 1_000
"""How many tasks die of one claim before it stops."""
LOOK = 128
"""How many tenants have a turn at a time."""
TURNS = 20
"""How many tenants share a claim at the least, where so many have work; claim.lua has the same."""


class Terms(NamedTuple):
    """What the leases of one claim have in common."""

    ms: int
    door: Door


class Claiming:
    """One claim of at most `limit` tasks, as the queue's limits allow, and `max_bytes` of them after the first."""

    def __init__(self, ledger: Ledger, limit: int, max_bytes: int, terms: Terms, deliveries: Deliveries) -> None:
        self._deliveries = deliveries
        self._ledger, self._turns = ledger, ledger.turns
        self._limit = ledger.limits.room(limit, ledger.running())
        self._bytes = max_bytes
        self._terms = terms
        self._cut = False
        self._lateness: list[int] = []
        self.tasks: list[Task] = []
        self.died = self.aside = 0

    def run(self) -> None:
        """Lease tasks, until there are enough, no more are due, or a bound is reached."""
        self._wake()
        while len(self.tasks) < self._limit and self.died + self.aside < BURY and not self._cut and self._round():
            pass
        if self.tasks:
            self._ledger.limits.log(self.tasks[0].fence, self._lateness)
        self._ledger.handovers.stop_waking()

    def _wake(self) -> None:
        """Let what waits be due again: for targets with room, and for those that this claim hands nothing to.

        A kind of the latter has another target by now, or none.
        """
        handovers = self._ledger.handovers
        room = {one.target: handovers.free(one.target, one.most) for one in self._deliveries.values()}
        strangers = [target for target in handovers.targets() if target not in room] if handovers.wake else []
        for target, free in (room | dict.fromkeys(strangers, self._limit)).items():
            self._ledger.wake(target, min(free, self._limit))

    def _round(self) -> bool:
        """One turn of each tenant in the ring's front; answers whether there was any."""
        self._turns.settle()
        self._turns.notice()
        free = self._limit - len(self.tasks)
        quantum = ceil(free / max(1, min(self._turns.ring_size, TURNS)))
        served: dict[str, list[str]] = {}
        for tenant in self._turns.front(LOOK):
            if free == 0:
                break
            served[tenant] = self._turns.ripe(tenant, max(0, min(quantum, free, self._room(tenant))))
            free -= len(served[tenant])
        done = [tenant for tenant, sids in served.items() if self._serve(sids)]
        self._turns.move_on(done, [tenant for tenant in done if self._room(tenant) <= 0])
        return bool(served)

    def _room(self, tenant: str) -> int:
        most = self._ledger.limits.settings.tenant_max_running
        return self._limit if most is None else most - self._turns.running(tenant)

    def _serve(self, sids: list[str]) -> bool:
        """One tenant's turn; False where the bytes were used up before it."""
        for i, sid in enumerate(sids):
            if self._cut or not self._begin(sid):
                return i > 0
        return not self._cut or bool(sids)

    def _begin(self, sid: str) -> bool:
        """Lease one task, or bury it past its deadline; False where the bytes are used up."""
        ledger, held = self._ledger, self._ledger.held(sid)
        if transitions.is_expired(held.task, ledger.now):
            after = transitions.expired(held, ledger.now)
            ledger.place(sid, after, ledger.now)
            verbs.tell_of(ledger, after.task)
            self.died += 1
            return True
        delivery = self._deliveries.get(held.task.kind)
        if delivery and ledger.handovers.free(delivery.target, delivery.most) <= 0:
            ledger.put_aside(sid, held, delivery)
            self.aside += 1
            return True
        self._bytes -= ledger.size(sid)
        if self.tasks and self._bytes < 0:
            self._cut = True
            return False
        self._lateness.append(ledger.now - held.task.due_at)
        self.tasks.append(begin(ledger, sid, held, self._terms, delivery))
        return True


def claim(ledger: Ledger, limit: int, max_bytes: int, terms: Terms, deliveries: Deliveries) -> Claim:
    """Take back lapsed leases, then lease what is due."""
    _, died = verbs.reclaim(ledger)
    claiming = Claiming(ledger, limit, max_bytes, terms, deliveries)
    claiming.run()
    ledger.leave()
    bell_at, (barred, held) = ledger.hang(), ledger.held_back()
    left = ledger.turns.waiting() if ledger.turns.has_parked() else ledger.indexes.ripe(ledger.now)
    backlog, priority = 0 if barred else left, ledger.limits.settings.priority
    died = died + claiming.died
    return Claim(claiming.tasks, died, backlog, bell_at, ledger.now, held, priority, claiming.aside)


def begin(ledger: Ledger, sid: str, held: Held, terms: Terms, delivery: Delivery | None = None) -> Task:
    """Lease one task, for delivery where it is handed over."""
    until, target = ledger.now + (delivery.lease_ms if delivery else terms.ms), delivery.target if delivery else ""
    after = transitions.leased(held, ledger.now, ledger.next_fence(), secrets.token_bytes(8), terms.door, target)
    ledger.place(sid, after, until)
    return after.task._replace(lease_expires_at=until)


def take(ledger: Ledger, sid: str, terms: Terms) -> Task | None:
    """Lease one scheduled task, due or not; None where it is not scheduled or a limit does not allow it."""
    verbs.reclaim(ledger)
    held, limits = ledger.get(sid), ledger.limits
    if not held or held.task.status is not Status.SCHEDULED or transitions.is_expired(held.task, ledger.now):
        return None
    most = limits.settings.tenant_max_running
    if limits.room(1, ledger.running()) < 1 or (most is not None and ledger.turns.running(held.task.tenant) >= most):
        return None
    task = begin(ledger, sid, held, terms)
    limits.log(task.fence, [ledger.now - held.task.due_at])
    return task
