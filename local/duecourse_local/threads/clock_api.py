"""The clock of a stack over HTTP, beside Lambda's Invoke API: `duecourse advance` calls it."""

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from ..stack.problems import HarnessError
from .travel import Travel

PATH = "/clock"


def clock_route(travel: Travel) -> Route:
    """The route: GET answers the time; POST {"to": span or instant} moves it, and answers when all is done."""

    async def serve(request: Request) -> JSONResponse:
        if request.method == "GET":
            return JSONResponse({"now": travel.now})
        if request.headers.get("content-type", "") != "application/json":  # a page's form is not what moves time
            return JSONResponse({"detail": "send the body with Content-Type: application/json"}, 415)
        try:
            given = await request.json()
            claimed = await travel.advance(str(given["to"]))
        except (ValueError, LookupError, TypeError) as error:
            return JSONResponse({"detail": f"to: {error}"}, 422)
        except HarnessError as error:
            return JSONResponse({"detail": str(error)}, 500)
        return JSONResponse({"now": travel.now, "claimed": claimed})

    return Route(PATH, serve, methods=["GET", "POST"])
