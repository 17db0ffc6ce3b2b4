"""Pages of the reference, written by `python -m local.reference`."""

from . import metrics, settings
from .api import REFERENCE, document, reference

REFERENCE.parent.mkdir(exist_ok=True)
REFERENCE.write_text(reference(document()))
for written in (metrics, settings):
    written.PAGE.write_text(written.page())
