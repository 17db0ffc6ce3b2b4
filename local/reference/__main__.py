"""Pages of the reference, written by `python -m local.reference`."""

from . import settings
from .api import REFERENCE, document, reference

REFERENCE.parent.mkdir(exist_ok=True)
REFERENCE.write_text(reference(document()))
settings.PAGE.write_text(settings.page())
