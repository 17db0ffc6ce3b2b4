"""`worker`: run the handlers of your own modules in processes of your own."""

from typing import Annotated

import typer

from duecourse.base.times import parse_duration
from duecourse.worker.options import GRACE_MS, Options
from duecourse.worker.parent import run

from .options import duration

Imports = Annotated[
    list[str], typer.Option("--import", metavar="MODULE", help="A module with handlers; may be given several times.")
]
Queues = Annotated[list[str], typer.Option("--queue", help="A queue to serve; default: every queue.")]
Concurrency = Annotated[
    int | None,
    typer.Option(
        help="Number of tasks at a time in each process, 1 to 256.",
        show_default="DUECOURSE_PARALLEL, or 100 with async handlers alone",
    ),
]
Store = Annotated[str, typer.Option(help="The store's URL.", show_default="DUECOURSE_STORE")]
Port = Annotated[int | None, typer.Option("--health-port", help="Port for /live and /ready.", show_default="none")]
Host = Annotated[
    str | None,
    typer.Option(
        "--health-host",
        metavar="ADDRESS",
        help='Address of the health port, "" for every one.',
        show_default="every one in a container, else 127.0.0.1",
    ),
]
Grace = Annotated[str, typer.Option(callback=duration, help="Time for running tasks after SIGTERM.")]


def worker(
    imports: Imports,
    queues: Queues = [],  # noqa: B006 typer reads it, and nobody changes it
    processes: Annotated[int, typer.Option(help="Number of processes, 1 to 64.")] = 1,
    concurrency: Concurrency = None,
    store: Store = "",
    health_port: Port = None,
    health_host: Host = None,
    grace: Grace = f"PT{GRACE_MS // 1_000}S",
) -> None:
    """Run tasks in processes of your own, with no Lambda, until SIGTERM or Ctrl-C.

    The worker imports your modules and runs the kinds that their handlers name, and the built-in kinds. No bridge
    and no tick has to run beside a worker. Settings come from DUECOURSE_* variables.

    Examples:

        duecourse worker --import myapp.kinds

        duecourse worker --import myapp.kinds --processes 4 --queue reports --health-port 8080
    """
    options = Options(
        imports=tuple(imports),
        queues=tuple(queues),
        processes=processes,
        concurrency=concurrency,
        store=store,
        health_port=health_port,
        health_host=health_host,
        grace_ms=parse_duration(grace),
    )
    raise typer.Exit(run(options))
