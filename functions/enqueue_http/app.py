"""The HTTP API, as API Gateway invokes it."""

from typing import Any

from duecourse.process import Handler
from duecourse.routes.every import api, serve
from duecourse.wiring import App

__all__ = ["api", "handler"]


@Handler
def handler(app: App, event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Answer one request of the HTTP API (payload format 2.0)."""
    return serve(app, event, context)
