"""One storm from its beginning to its verdict."""

import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from duecourse import Client, Status, errors
from tests.whole.storm import receivers
from tests.whole.storm.book import Book
from tests.whole.storm.clients import Lane, Work
from tests.whole.storm.emptied import empty, left
from tests.whole.storm.parts import Workers, environment, local_stack, sender, targets
from tests.whole.storm.plan import LANES, Plan
from tests.whole.storm.stage import SERVERS, Faults, now_ms
from tests.whole.storm.verdict import Judge, Verdict, judge_gate

SOON_MS = 3_600_000
SETTLED_WITHIN_S = 120.0
"""Time after the last fault within which all must be done: longer than a lease, an event's wait and a tick."""
WORKERS = 2
SAID_EACH_S = 10.0
SHOWN = 3
"""Tasks of a queue and state that are told while a storm waits for its end."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a storm."""

    plan: Plan
    verdict: Verdict
    begun_at: int
    faults: tuple[tuple[str, int, int], ...]
    settled_s: float
    """Seconds from the last step to the end of the last task."""


def run(
    plan: Plan, folder: Path, *, amqp: str = "", functions: bool = True, say: Callable[[str], None] = print
) -> Outcome:
    """Have a storm pass over parts of its own, in `folder`; `amqp` is a RabbitMQ's URL."""
    log = folder / "ran.jsonl"
    book = Book(log)
    rabbit = f"storm-{secrets.token_hex(4)}" if amqp else ""
    with ExitStack() as parts:
        servers = parts.enter_context(SERVERS[plan.stage](folder))
        given = environment(servers.url, log, WAIT=str(servers.wait), EGRESS_ALLOW="127.0.0.0/8")
        stack = None
        if functions:
            handed = {"DUECOURSE_TARGETS": targets(receivers.SQS, rabbit), **({"DUECOURSE_AMQP": amqp} if amqp else {})}
            stack = parts.enter_context(local_stack(folder / "project", given | handed))
            parts.enter_context(receivers.sqs(book, stack.aws))
        workers = Workers(WORKERS, given | (sender(stack.aws) if stack else {}), folder)
        parts.callback(workers.close)
        workers.start()
        if rabbit:
            parts.enter_context(receivers.broker(book, amqp, rabbit))
        receiver = parts.enter_context(receivers.web(book))
        settings = {"shards": {"wide": 4}, "wait": servers.wait, "egress_allow": "127.0.0.0/8"}
        client = parts.enter_context(Client(servers.url, **settings))  # type: ignore[arg-type]
        judge = parts.enter_context(Client(servers.ledger, shards={"wide": 4}))
        judge.set_queue("narrow", create=True, max_running=2)
        lanes = [Lane(n, plan.steps, book, client, Work(receiver, stack.api if stack else None)) for n in range(LANES)]
        faults = Faults(plan.faults, servers, workers, stack)
        begun_at, beginning = now_ms(), time.monotonic()
        _pass(lanes, faults, beginning, say)
        servers.calm()
        ended = time.monotonic()
        say(f"{plan.stage}: all was asked after {ended - beginning:.0f} s; {len(faults.happened)} faults")
        wrong = judge_gate(book, judge)
        judge.set_queue("gate", create=True, paused=False)  # its client may have given up
        settled = _settle(judge, ended, say)
        time.sleep(1)  # receivers read what was confirmed last
        mails = receivers.mails(stack.aws) if stack else None
        verdict = Judge(plan, book, judge, faults.happened, mails, faults.killed, faults.stopped, faults.frozen).judge()
        verdict.wrong += wrong
        if settled >= 0:
            empty(judge)
            with servers.client() as redis:
                verdict.wrong += [f"LEFT in the emptied ledger: {one}" for one in left(redis)]
        else:
            verdict.wrong.append(f"LATE FOR GOOD: not all was settled within {SETTLED_WITHIN_S:g} s")
        return Outcome(plan, verdict, begun_at, tuple(faults.happened), settled)


def _pass(lanes: Sequence[Lane], faults: Faults, beginning: float, say: Callable[[str], None]) -> None:
    """Have the clients ask all, while one fault comes after another."""
    for lane in lanes:
        lane.begun_at = beginning
        lane.start()
    faults.run(beginning, say)
    for lane in lanes:
        lane.join()
        if lane.error:
            raise lane.error


def _settle(client: Client, since: float, say: Callable[[str], None]) -> float:
    """Wait until nothing is scheduled, running or soon to fire; answers how long that took, -1 for too long.

    A schedule that was added by a clock far ahead fires by that clock: the verdict counts those.
    """
    said = time.monotonic()
    while True:
        queues = client.list_queues()
        soon = now_ms() + SOON_MS
        left = {queue.name: (queue.scheduled, queue.running, (queue.fires_at or soon) < soon) for queue in queues}
        if not any(scheduled or running or fires for scheduled, running, fires in left.values()):
            return time.monotonic() - since
        if time.monotonic() - since > SETTLED_WITHIN_S:
            return -1.0
        if time.monotonic() - said > SAID_EACH_S:
            said = time.monotonic()
            say(f"  waiting: {', '.join(f'{name} {one[0]}+{one[1]}' for name, one in left.items() if any(one))}")
            for line in _why_some(client, [name for name, one in left.items() if any(one)]):
                say(f"    {line}")
        time.sleep(0.5)


def _why_some(client: Client, queues: Sequence[str]) -> Iterator[str]:
    """Why some of the tasks wait that are left, with what became of their runs."""
    for queue in queues:
        for state in (Status.SCHEDULED, Status.LEASED):
            for task in client.list(queue, state=str(state), limit=SHOWN).tasks:
                ran = ", ".join(f"{run.outcome} {run.detail}".strip() for run in task.history)
                with suppress(errors.TaskNotFound):
                    waits = client.why(task.id, queue).waits
                    yield f"{queue}/{task.id} {task.kind}: {waits and waits.text} [{ran}]"
