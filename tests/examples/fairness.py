"""Share a queue between two customers: they take turns, however many tasks one of them adds.

In two terminals, with `export DUECOURSE_STORE=redis://localhost:6379/0` in each:

    duecourse worker --import fairness
    python fairness.py

The program prints:

    large small large small large small large large large large large large
    The rate made the last ones wait: True
"""

import time

from duecourse import Client, Task, task_handler


@task_handler(kind="convert")
def convert(_: Task) -> None:
    """Run in the worker, one task at a time."""
    time.sleep(0.01)


def main() -> None:
    """Add the tasks while the queue is paused, so that all of them are due when it is resumed."""
    client = Client.from_env()
    client.set_queue("files", create=True, paused=True, max_running=1, rate="5/s")
    added = []
    for tenant, number in (("large", 9), ("small", 3)):
        customer = Client.from_env(tenant=tenant)  # sees the tasks of this tenant alone
        added += [(customer, customer.add("convert", {"file": n}, queue="files").task.id) for n in range(number)]
    client.set_queue("files", paused=False)

    ended = [customer.wait(id, "files", timeout="1m") for customer, id in added]
    ended.sort(key=lambda task: task.history[0].claimed_at)
    first, last = ended[0].history[0], ended[-1].history[0]
    print(*(task.tenant for task in ended))
    print("The rate made the last ones wait:", last.claimed_at - first.claimed_at > 1000)


if __name__ == "__main__":
    main()
