"""duecourse's adds, by `Client`."""

import sys

from duecourse.client import Client, TaskFields
from duecourse.process import PROCESS
from duecourse.settings import Settings
from duecourse.wiring import App
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
