"""Pages of the reference, written by `python -m duecourse_local.reference`."""

from . import client_fields, licences, metrics, openapi, settings

made = openapi.document()
openapi.write(made)
client_fields.MODULE.write_text(client_fields.module(made))

from .api import REFERENCE, reference  # noqa: E402 - it imports the client, which needs that module

REFERENCE.parent.mkdir(exist_ok=True)
REFERENCE.write_text(reference(made))
for written in (licences, metrics, settings):
    written.PAGE.write_text(written.page())
