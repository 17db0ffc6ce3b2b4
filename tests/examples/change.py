"""Move, replace, cancel and debounce a task that is not due yet.

The clock is moved by hand. Run the program by itself:

    python change.py

The program prints:

    moved to 01:00
    replaced by coffee, due at 00:30
    cancelled
    00:07 the page is saved after edit 3
"""

from duecourse import Task
from duecourse.testing import Duecourse


def save_page(task: Task) -> None:
    """Run once, when five minutes have passed without an edit."""
    print(f"{task.due:%H:%M} the page is saved after edit {task.payload['edit']}")


with Duecourse() as duecourse:
    duecourse.handle("save", save_page)
    duecourse.handle("order", print)
    client = duecourse.client

    client.add("order", {"drink": "tea"}, id="table-4", delay="10m")
    task = client.move("table-4", delay="1h")
    print(f"moved to {task.due:%H:%M}")
    task = client.add("order", {"drink": "coffee"}, id="table-4", delay="30m", on_duplicate="replace").task
    print(f"replaced by {task.payload['drink']}, due at {task.due:%H:%M}")
    client.cancel("table-4")
    print(client.get("table-4").status)

    for edit in (1, 2, 3):
        client.add("save", {"edit": edit}, id="page", delay="5m", on_duplicate="debounce")
        duecourse.advance("1m")
    duecourse.advance("1h")
