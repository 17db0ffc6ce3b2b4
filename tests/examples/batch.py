"""Add a hundred tasks in one request, and wait until all of them have ended.

In two terminals, with `export DUECOURSE_STORE=redis://localhost:6379/0` in each:

    duecourse worker --import batch
    python batch.py

The program prints:

    100 added
    99 done, with 104037 letters
    dead: there is no page 13
"""

import asyncio

from duecourse import AddResult, AsyncClient, Done, Drop, Status, Task, task_handler


@task_handler(kind="page")
def count_letters(task: Task) -> Done | Drop:
    """Run in the worker."""
    page = task.payload["page"]
    return Drop(f"there is no page {page}") if page == 13 else Done({"letters": 1000 + page})


async def main() -> None:
    """Wait for all tasks at once: they take one connection together."""
    async with AsyncClient.from_env() as client:
        answers = await client.add_many([{"kind": "page", "payload": {"page": n}} for n in range(1, 101)])
        added = [one.task.id for one in answers if isinstance(one, AddResult)]  # the others are errors
        print(len(added), "added")
        ended = await asyncio.gather(*(client.wait(id, timeout="1m") for id in added))
    done = [task.result["letters"] for task in ended if task.status == Status.DONE]
    print(f"{len(done)} done, with {sum(done)} letters")
    for task in ended:
        if task.status == Status.DEAD:
            print("dead:", task.error)


if __name__ == "__main__":
    asyncio.run(main())
