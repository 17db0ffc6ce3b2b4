"""Errors of the harness and of the command; each text is fit for a user."""


class HarnessError(Exception):
    """The harness cannot do this."""


class TemplateError(HarnessError):
    """The template cannot be run as it is."""
