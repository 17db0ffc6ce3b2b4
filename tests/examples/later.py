"""Add a task that is due in a second, and wait for its result.

In two terminals, with `export DUECOURSE_STORE=redis://localhost:6379/0` in each:

    duecourse worker --import later
    python later.py

The program prints:

    scheduled
    done 6
"""

from duecourse import Client, Done, Task, task_handler


@task_handler(kind="sum")
def add_up(task: Task) -> Done:
    """Run in the worker, when the task is due."""
    return Done(sum(task.payload["numbers"]))


def main() -> None:
    """Run in a program of yours, such as a web service."""
    with Client.from_env() as client:
        task = client.add("sum", {"numbers": [1, 2, 3]}, delay="1s").task
        print(task.status)
        task = client.wait(task.id, timeout="30s")
        print(task.status, task.result)


if __name__ == "__main__":
    main()
