"""Run a task each weekday at 09:00 in Vienna, also when the clocks change; pause and resume it.

The clock is moved by hand. Run the program by itself:

    python schedule.py

The program prints:

    Thu 25 Mar 08:00 UTC
    Fri 26 Mar 08:00 UTC
    Mon 29 Mar 07:00 UTC
    It is paused: nothing fires until it is resumed.
    Fri 02 Apr 07:00 UTC
    4 fired, 3 missed
"""

from duecourse import Task
from duecourse.testing import Duecourse


def report(task: Task) -> None:
    """Run at each occurrence, which is a task of its own."""
    print(f"{task.due:%a %d %b %H:%M} UTC")


with Duecourse(start="2027-03-25T00:00:00Z") as duecourse:
    duecourse.handle("report", report)
    schedules = duecourse.client.schedules
    rule = {"cron": "0 9 * * MON-FRI"}
    schedules.add(id="morning", kind="report", payload={}, repeat=rule, time_zone="Europe/Vienna", missed="none")
    duecourse.advance("2027-03-29T12:00:00Z")

    print(schedules.change("morning", paused=True).why)
    duecourse.advance("3d")
    schedules.change("morning", paused=False)
    duecourse.advance("1d")
    progress = schedules.get("morning").progress
    print(f"{progress.fired} fired, {progress.missed} missed")
