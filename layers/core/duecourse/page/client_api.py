"""The HTTP API as a client's page has it: in this process, on the client's ledger."""

from duecourse.client.async_client import AsyncClient
from duecourse.client.client import Client
from duecourse.errors import ClientClosed
from duecourse.in_place import ApiAnswer, ApiRequest, ApiUnavailable, InPlaceApi
from duecourse.ledger.address import split
from duecourse.ledger.task import DEFAULT_TENANT

SOURCE = "page"
"""Source of tasks added through the page, as `why` shows it."""


class ClientApi:
    """The HTTP API on the ledger of a client, until the client is closed."""

    def __init__(self, client: Client | AsyncClient) -> None:
        blocking = client._client if isinstance(client, AsyncClient) else client  # noqa: SLF001 - the same ledger
        self._handle = blocking._app_handle  # noqa: SLF001 - a page is no verb of a client
        own = blocking._tenant  # noqa: SLF001 - as above
        settings = self._handle.app.settings
        self.name = f"store {split(settings.store).place} (namespace {settings.namespace})"
        self.tenant = None if own == DEFAULT_TENANT else own

    def send(self, request: ApiRequest) -> ApiAnswer:
        """See HttpApi."""
        try:
            app = self._handle.opened
        except ClientClosed as error:
            raise ApiUnavailable(str(error)) from error
        return InPlaceApi(app, self.name, SOURCE, self.tenant, is_bound=self.tenant is not None).send(request)
