"""A session of boto3 whose clients call the emulator, whatever this environment names."""

from typing import Any

import boto3

from .account import CREDENTIALS, REGION


class Session(boto3.Session):
    """A session for the services at one address, by the credentials that the emulator takes."""

    def __init__(self, url: str) -> None:
        super().__init__(CREDENTIALS["AWS_ACCESS_KEY_ID"], CREDENTIALS["AWS_SECRET_ACCESS_KEY"], region_name=REGION)
        self._url = url

    def client(self, service: Any, *given: Any, **options: Any) -> Any:  # type: ignore[override]
        """A client of a service, as boto3 makes it."""
        return super().client(service, *given, **{"endpoint_url": self._url, **options})

    def resource(self, service: Any, *given: Any, **options: Any) -> Any:  # type: ignore[override]
        """A resource of a service, as boto3 makes it."""
        return super().resource(service, *given, **{"endpoint_url": self._url, **options})
