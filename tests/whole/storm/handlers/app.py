"""The function of a storm: the kinds that begin with `f.`."""

from storm_work import work

from duecourse import Again, Done, Retry, Task, task_handler


@task_handler
def handler(task: Task) -> Done | Again | Retry:
    """Work one task as its kind says."""
    return work(task)
