"""duecourse's adds, by `Client`."""

import sys

from duecourse.app import PROCESS, App
from duecourse.client.client import Client
from duecourse.client.typed_dicts import TaskFields
from duecourse.settings import Settings
from tests.bench.peers.turns import BATCH, DELAY_S, PAYLOAD, serve


def main() -> None:
    """Serve."""
    with PROCESS.using(App(Settings(store=sys.argv[1], targets={"report": "lambda:report"}))):
        client = Client.from_env()
    asked: TaskFields = {"kind": "report", "payload": PAYLOAD, "delay": DELAY_S}

    def one(count: int) -> None:
        for _ in range(count):
            client.add(kind="report", payload=PAYLOAD, delay=DELAY_S)

    def many(count: int) -> None:
        for _ in range(0, count, BATCH):
            client.add_many([asked] * BATCH)

    serve(one=one, many=many)


if __name__ == "__main__":
    main()
