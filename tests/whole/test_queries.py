"""The front of a slow API, through the whole stack: by requests, a bridge and functions of its own processes."""

import json
import threading

import urllib3

from duecourse_local.harness.options import Options
from tests.support.api import Api
from tests.support.emulator import local_stack
from tests.support.http_server import ReceivedRequest, Reply, answering
from tests.support.matrix import MATRIX
from tests.support.wait import until


class Exporting:
    """An API whose export is ready once it is told so."""

    def __init__(self) -> None:
        self.ready = threading.Event()

    def __call__(self, _asked: ReceivedRequest) -> Reply:
        if not self.ready.is_set():
            return Reply(200, b'{"state": "running"}')
        return Reply(200, json.dumps({"state": "done", "rows": [1, 2]}).encode())


@MATRIX
def test_a_slow_answer_is_fetched_behind_its_back_and_outlives_its_task(http: urllib3.PoolManager) -> None:
    export = Exporting()
    with (
        answering(export) as server,
        local_stack(Options(tick=0, environment={"DUECOURSE_RETENTION": "PT0S"})) as stack,
    ):
        api = Api(http, stack.api)
        query = {"url": f"{server.url}/export", "interval": 1, "until": "state == 'done'", "result": "rows"}
        status, told = api.call("POST", "/queries", query)
        assert (status, told["status"], told["data"]) == (202, "processing", None)
        assert api.call("GET", f"/queries/{told['task']}")[1]["status"] == "processing"
        export.ready.set()
        until(lambda: api.call("POST", "/queries", query)[0] == 200, every=0.05)
        stack.tick()
        assert api.task(told["task"], told["queue"]) is None
        status, shown = api.call("GET", f"/queries/{told['task']}")
        assert (status, shown["status"], shown["data"]) == (200, "done", [1, 2])
        calls = len(server.asked)
        assert api.call("POST", "/queries", query) == (200, shown)
        assert len(server.asked) == calls
