"""`rotate`: seal credentials with a new data key from now on."""

from contextlib import closing
from typing import Annotated

import typer

from duecourse.errors import DuecourseError
from duecourse.settings import Settings
from duecourse.wiring import App

from ...stack import state
from ...stack.problems import HarnessError
from .. import client, console


def rotate(
    store: client.StoreUsed = None,
    namespace: client.NamespaceUsed = None,
    key: Annotated[
        str | None,
        typer.Option(
            help="KMS key (ARN, id or alias/…), or file:///path of a local key, that wraps the new data key.",
            show_default="that of the running stack, or DUECOURSE_SEAL_KEY",
        ),
    ] = None,
    folder: client.StateUsed = state.DEFAULT,
) -> None:
    """Make a new data key, with which credentials in tasks are sealed from now on.

    Every process uses the new key at its next add, and queues stay open.

    Tasks that wait keep the seal of their add, and the ledger keeps the earlier keys to open them.

    Rotate after a change of the KMS key, too. Delete the earlier KMS key once no task from before is left.

    Examples:

        duecourse rotate

        duecourse rotate --store rediss://10.0.0.1:6379 --key alias/duecourse
    """
    with console.problems_shown():
        made = _rotate(client.ledger(store, folder, namespace=namespace, seal_key=key))
    console.out.print(f"credentials are sealed with the data key {made} from now on")


def _rotate(settings: Settings) -> str:
    if not settings.seal_key:
        raise HarnessError("no key is set: give --key, or set DUECOURSE_SEAL_KEY")
    try:
        with closing(App(settings)) as app:
            return app.seals.rotate()
    except DuecourseError as error:
        raise HarnessError(str(error)) from error
