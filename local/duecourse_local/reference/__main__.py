"""Pages and pictures of the reference, written by `python -m duecourse_local.reference`."""

from . import drawings, licences, metrics, openapi, settings
from .api import REFERENCE, document, reference

REFERENCE.parent.mkdir(exist_ok=True)
made = document()
REFERENCE.write_text(reference(made))
openapi.write(made)
for written in (licences, metrics, settings):
    written.PAGE.write_text(written.page())
drawings.write()
