"""The operators' page: an ASGI application to mount in a program of your own, behind its own login."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from duecourse.client.async_client import AsyncClient
    from duecourse.client.client import Client
    from duecourse.page.server import Page

__all__ = ["app"]

NO_STARLETTE = "the page needs Starlette: pip install 'duecourse[page]'"


def app(client: "Client | AsyncClient", *, read_only: bool = False, base: str = "") -> "Page":
    """Make the ASGI application of the page for a client's ledger.

    The application has no login, so mount it behind your own: each of its users is an operator. A client of one
    `tenant` has its tasks alone. With `read_only`, every request that would change something is rejected. `base` is
    the page's path in the address that a browser shows, `/ops`; by default the path at which the application is
    mounted. Raises ModuleNotFoundError without the extra `page`.
    """
    try:
        from duecourse.page.server import Page
    except ModuleNotFoundError as error:
        if error.name != "starlette":
            raise
        raise ModuleNotFoundError(NO_STARLETTE, name="starlette") from error
    from duecourse.page.client_api import ClientApi

    return Page(ClientApi(client), read_only=read_only, base=base)
