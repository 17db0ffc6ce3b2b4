"""Stacks of small functions that are threads of this process."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.harness import Probes, probes

APP = """
import os, sys, time
from concurrent.futures import ThreadPoolExecutor
import helper, probelib
from duecourse import Client, Done, save, task_handler
from duecourse.app import Handler

def echo(event, context):
    print("echoing", event)
    return {"event": event, "helper": helper.NAME, "layer": probelib.NAME, "pid": os.getpid(),
            "environment": dict(os.environ), "remaining_ms": context.get_remaining_time_in_millis(),
            "name": context.function_name, "arn": context.invoked_function_arn, "id": context.aws_request_id,
            "log_group": context.log_group_name}

def raising(event, context):
    raise KeyError("no such thing")

def leaving(event, context):
    sys.exit(event["code"])

def busy(event, context):
    time.sleep(event["seconds"])

def interrupted(event, context):
    raise KeyboardInterrupt

def unspeakable(event, context):
    return object()

@Handler
def of_app(app, event, context):
    return {"helper": helper.NAME, "targets": app.settings.targets, "parallel": app.settings.parallel, "app": id(app)}

@task_handler
def saving(task):
    threads = ThreadPoolExecutor(1)
    threads.submit(save, task, {"step": 1}).result()
    added = threads.submit(lambda: Client.from_env().add(kind="webhook", payload=HOOK, id="next", delay=3600)).result()
    threads.shutdown()
    return Done(added.task.id)

HOOK = {"url": "https://example.com/"}
"""
PROPERTIES = {"Runtime": "python3.11", "Timeout": 10, "Layers": [{"Ref": "Library"}]}


def function(handler: str, code: str = "one", **more: Any) -> dict[str, Any]:
    """A function of the template."""
    return {"Type": "AWS::Serverless::Function", "Properties": {"CodeUri": code, "Handler": handler, **more}}


def variables(**given: str) -> dict[str, Any]:
    return {"Environment": {"Variables": given}}


FUNCTIONS = {
    "Echo": function("app.echo", **variables(OWN="yes", BOTH="same", EMPTY="")),
    "Other": function(
        "app.echo", "two", LoggingConfig={"LogGroup": "/its/own"}, **variables(BOTH="same", EMPTY="not here")
    ),
    "Raising": function("app.raising"),
    "Leaving": function("app.leaving"),
    "Interrupted": function("app.interrupted", ReservedConcurrentExecutions=1),
    "Busy": function("app.busy", Timeout=1, ReservedConcurrentExecutions=1),
    "Unspeakable": function("app.unspeakable"),
    "Unimportable": function("broken.handler"),
    "Saving": function("app.saving"),
    "OfApp": function("app.of_app", **variables(DUECOURSE_TARGETS='{"report": "lambda:Report"}')),
    "OfOther": function("app.of_app", "two", **variables(DUECOURSE_TARGETS="", DUECOURSE_PARALLEL="3")),
}


@contextmanager
def threads(folder: Path, functions: Any = None, **options: Any) -> Iterator[Probes]:
    """A stack of such functions on `memory://`, or the store given."""
    for name in ("one", "two"):
        (folder / name).mkdir(exist_ok=True)
        (folder / name / "app.py").write_text(APP)
        (folder / name / "helper.py").write_text(f"NAME = {name!r}")
    (folder / "one" / "broken.py").write_text("import there_is_no_such_module")
    (folder / "layer").mkdir(exist_ok=True)
    (folder / "layer" / "probelib.py").write_text("NAME = 'from the layer'")
    library = {"Type": "AWS::Serverless::LayerVersion", "Properties": {"ContentUri": "layer"}}
    text = {"Globals": {"Function": PROPERTIES}, "Resources": {"Library": library, **(functions or FUNCTIONS)}}
    (folder / "template.yaml").write_text(json.dumps(text))
    with probes(str(folder / "template.yaml"), **{"store": "memory://", **options}) as running:
        yield running
    sys.modules.pop("probelib", None)
