"""Pages of the reference, written by `python -m duecourse_local.reference`."""

from . import licences, metrics, openapi, settings, typed_dicts

made = openapi.document()
openapi.write(made)
typed_dicts.MODULE.write_text(typed_dicts.module(made))

from .api import REFERENCE, reference  # noqa: E402 - it imports the client, which needs that module

REFERENCE.parent.mkdir(exist_ok=True)
REFERENCE.write_text(reference(made))
for written in (licences, metrics, settings):
    written.PAGE.write_text(written.page())
