"""Idempotency-Key (draft-ietf-httpapi-idempotency-key-header): a request sent twice is done once, answered the same."""

import json
import zlib
from typing import Any

from aws_lambda_powertools.event_handler import ApiGatewayResolver, Response
from aws_lambda_powertools.event_handler.middlewares import NextMiddleware

from duecourse.domain.idempotency import KeyedTry
from duecourse.domain.quotas import quotas_of
from duecourse.ports.idempotency import KeyedRequest
from duecourse.routes import request
from duecourse.routes.parts import rejection
from duecourse.wire.http import problems

GRACE_MS = 1_000
"""Time after the end of its function after which an unfinished request may be begun again."""


def idempotent(app: ApiGatewayResolver, next_middleware: NextMiddleware) -> Response[Any]:
    """The middleware: a changing request with a key is done under it, any other as if this were not here."""
    asked = request.served()
    key = asked.key()
    if key is None:
        return next_middleware(app)

    def do(this: KeyedTry) -> bytes:
        asked.keyed = this
        return _pack(next_middleware(app))

    quota = quotas_of(asked.app.settings.tenant_quotas, asked.tenant).tenant_max_bytes or 0
    sent = KeyedRequest(asked.tenant, key, asked.fingerprint(), quota)
    lock_ms = app.lambda_context.get_remaining_time_in_millis() + GRACE_MS
    return _unpack(asked.app.idempotency.answer(sent, lock_ms, do, _saved))


def _saved(error: BaseException) -> bytes | None:
    problem = problems.problem_of(error) if isinstance(error, Exception) else None
    return _pack(rejection(problem)) if problem and problem.status < 500 else None


def _pack(response: Response[Any]) -> bytes:
    body = response.body
    text = body if body is None or isinstance(body, str) else json.dumps(body, separators=(",", ":"))
    return zlib.compress(json.dumps([response.status_code, response.headers, text]).encode())


def _unpack(answer: bytes) -> Response[Any]:
    status, headers, text = json.loads(zlib.decompress(answer))
    return Response(status, None, text, headers)
