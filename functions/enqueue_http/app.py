"""The HTTP API, as API Gateway, a function URL or a load balancer invokes it."""

from typing import Any

from duecourse.process import Handler
from duecourse.routes.every import api, serve
from duecourse.wiring import App

__all__ = ["api", "handler"]


@Handler
def handler(app: App, event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Answer one request. Raises InvalidInput for an event that is none."""
    return serve(app, event, context)
