"""Handlers of the measured worker: nothing, and one that tells how late it began."""

import os
import time

import redis

from duecourse import Task, task_handler

client = redis.Redis.from_url(os.environ["DUECOURSE_STORE"])


@task_handler(kind="nothing")
def nothing(_task: Task) -> None:
    """Do nothing."""


@task_handler(kind="late")
def late(task: Task) -> None:
    """Tell how late it is, in ms."""
    client.rpush("late", time.time() * 1_000 - task.payload["due"])
