"""Let a task fail until its attempts are used up, mend the cause, and replay it.

The clock is moved by hand. Run the program by itself:

    python retries.py

The program logs the traceback of each failed attempt, and prints:

    00:00 retry ConnectionError: the bank is closed at retries.py:…
    00:01 retry ConnectionError: the bank is closed at retries.py:…
    00:03 retry ConnectionError: the bank is closed at retries.py:…
    dead: 1 of the kind pay
    replayed: done {'paid': 20}
"""

from duecourse import Done, Task, to_datetime
from duecourse.testing import Duecourse

bank = {"open": False}


def pay(task: Task) -> Done:
    """Pay once. An exception is a failed attempt, and the next one waits twice as long."""
    if not bank["open"]:
        raise ConnectionError("the bank is closed")
    return Done({"paid": task.payload["amount"]})


with Duecourse() as duecourse:
    duecourse.handle("pay", pay)
    client = duecourse.client
    retry = {"max_attempts": 3, "backoff": "1m", "jitter": False}
    client.add("pay", {"amount": 20}, id="order-7", retry=retry)
    duecourse.advance("1h")
    for run in client.get("order-7").history:
        print(f"{to_datetime(run.claimed_at):%H:%M} {run.outcome} {run.detail}")
    for group in client.list_dead().groups:
        print(f"dead: {group.count} of the kind {group.kind}")

    bank["open"] = True
    client.replay("order-7")
    duecourse.advance(0)
    task = client.get("order-7")
    print("replayed:", task.status, task.result)
