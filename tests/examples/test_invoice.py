"""Test a handler of your own: one run of it, and then weeks of runs on a clock that is moved by hand.

    pytest test_invoice.py

The last line is:

    2 passed in …
"""

from duecourse import Again, Done, Task, task_handler
from duecourse.testing import Duecourse, make_task, run


@task_handler(kind="invoice")
def remind(task: Task) -> Done | Again:
    """Remind a customer each week, three times at most."""
    sent = (task.state or 0) + 1
    return Done({"reminders": sent}) if sent == 3 else Again(after="7d", state=sent)


def test_a_second_reminder_follows_the_first() -> None:
    task = make_task(kind="invoice", payload={"customer": "Ada"})
    assert run(remind, task).outcome == Again(after="7d", state=1)


def test_a_customer_is_reminded_three_times(duecourse: Duecourse) -> None:
    duecourse.handle("invoice", remind)
    task = duecourse.add("invoice", {"customer": "Ada"}, delay="30d")
    assert duecourse.advance("29d") == 0  # runs
    assert duecourse.advance("1d") == 1
    assert duecourse.advance("14d") == 2
    assert duecourse.client.get(task.id).result == {"reminders": 3}
