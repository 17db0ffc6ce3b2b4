"""Lambda's Invoke API over HTTP: what boto3 and the AWS CLI call, so they need an endpoint and nothing else."""

import base64
import json

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from .functions import Functions
from .invocation import Busy, Invocation, LambdaError

PATH = "/2015-03-31/functions/{name:path}/invocations"
OF_PAGES = frozenset({"", "text/plain", "multipart/form-data", "application/x-www-form-urlencoded"})
"""Content types that a web page may send anywhere, and no browser asks first; "" is a body without one."""
OF_SDKS = ("authorization", "x-amz", "amz-sdk-")
"""Headers of programs, not all of which give a content type: a page may send none of them unasked."""


def lambda_api(functions: Functions, *others: Route) -> Starlette:
    """The application that serves `functions`, and other routes of the harness."""

    async def invoke(request: Request) -> Response:
        try:
            return await _invoke(functions, request)
        except LambdaError as refused:
            return _refusal(refused)

    return Starlette(routes=[Route(PATH, invoke, methods=["POST"]), *others])


async def _invoke(functions: Functions, request: Request) -> Response:
    name, headers = request.path_params["name"], request.headers
    functions.find(name)
    body = await request.body()
    if body and _by_page(headers):
        raise LambdaError(415, "UnsupportedMediaTypeException", "Send the body with Content-Type: application/json.")
    invocation = Invocation(body or b"{}", _client_context(headers.get("x-amz-client-context", "")))
    invocation.trace = headers.get("x-amzn-trace-id", invocation.trace)
    kind = headers.get("x-amz-invocation-type", "RequestResponse")
    if kind == "DryRun":
        return _response(invocation, 204)
    if kind == "Event":
        functions.send(name, invocation)
        return _response(invocation, 202)
    answer = await functions.invoke(name, invocation)
    response = _response(invocation, 200, answer.payload)
    if answer.error:
        response.headers["X-Amz-Function-Error"] = answer.error
    if headers.get("x-amz-log-type") == "Tail":
        response.headers["X-Amz-Log-Result"] = base64.b64encode(invocation.log).decode()
    return response


def _by_page(headers: Headers) -> bool:
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    return kind in OF_PAGES and not any(name.startswith(OF_SDKS) for name in headers)


def _client_context(header: str) -> str:
    """The context as ASCII JSON text, "" for none. Raises LambdaError."""
    if not header:
        return ""
    try:
        return json.dumps(json.loads(base64.b64decode(header, validate=True)))
    except ValueError as error:
        raise LambdaError(
            400, "InvalidRequestContentException", f"Client context must be base64 JSON: {error}"
        ) from None


def _response(invocation: Invocation, status: int, body: bytes = b"") -> Response:
    headers = {
        "x-amzn-RequestId": invocation.request_id,
        "X-Amzn-Trace-Id": invocation.trace,
        "X-Amz-Executed-Version": "$LATEST",
    }
    return Response(body, status, headers, media_type="application/json")


def _refusal(refused: LambdaError) -> Response:
    body = {"Type": "User", "Message": str(refused), "message": str(refused)}
    if isinstance(refused, Busy):
        body["Reason"] = f"{'ReservedFunction' if refused.throttled else ''}ConcurrentInvocationLimitExceeded"
    headers = {"x-amzn-ErrorType": refused.kind}
    return Response(json.dumps(body), refused.status, headers, media_type="application/json")
