"""The HTTP API, as API Gateway, a function URL or a load balancer invokes it."""

from typing import Any

from duecourse.base.cold_imports import lasting

with lasting():
    from duecourse.app import App, Handler
    from duecourse.routes import api, serve

__all__ = ["api", "handler"]


@Handler
def handler(app: App, event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Answer one request. Raises InvalidInput for an event that is none."""
    return serve(app, event, context)
