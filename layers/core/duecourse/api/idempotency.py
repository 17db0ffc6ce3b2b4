"""Idempotency-Key (draft-ietf-httpapi-idempotency-key-header): a request sent twice is done once, answered the same."""

import json
import logging
import secrets
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from aws_lambda_powertools.event_handler import ApiGatewayResolver, Response
from aws_lambda_powertools.event_handler.middlewares import NextMiddleware

from duecourse.api import problems
from duecourse.api.request import current_request
from duecourse.api.router import problem_response
from duecourse.errors import InvalidInput, KeyInUse, KeyReused, QuotaExceeded, StoreMisused, StoreUnavailable
from duecourse.ledger.operation_types import KeyedRequest, KeyedTry, RequestState
from duecourse.ledger.queue import quotas_of

if TYPE_CHECKING:
    from duecourse.ledger.operations.namespace_records import IdempotencyStore

log = logging.getLogger("duecourse.api")

GRACE_MS = 1_000
"""Time after the end of its function after which an unfinished request may be begun again."""
BYTES_QUOTA = "tenant_max_bytes"
"""Quota of a deployment that bounds the answers of each tenant, too."""


def idempotent(api: ApiGatewayResolver, next_middleware: NextMiddleware) -> Response[Any]:
    """Middleware: do a changing request with a key once; pass any other request on."""
    asked = current_request()
    key = asked.key
    if key is None:
        return next_middleware(api)

    def do(this: KeyedTry) -> bytes:
        asked.keyed = this
        return _pack(next_middleware(api))

    quota = quotas_of(asked.app.settings.tenant_quotas, asked.tenant).tenant_max_bytes or 0
    sent = KeyedRequest(asked.tenant, key, asked.fingerprint(), quota)
    lock_ms = api.lambda_context.get_remaining_time_in_millis() + GRACE_MS
    return _unpack(_answer_once(asked.app.ledger.idempotency(), sent, lock_ms, do))


def _answer_once(store: "IdempotencyStore", sent: KeyedRequest, lock_ms: int, do: Callable[[KeyedTry], bytes]) -> bytes:
    """Answer of `do`, or the stored answer if this request was sent before.

    `do` has `lock_ms`. Raises what `do` raises, and KeyReused, KeyInUse, StoreUnavailable; and QuotaExceeded for a
    new request whose tenant has used up what it may have kept. A request that InvalidInput or QuotaExceeded rejects
    at its first try was never begun: the key is free again.
    """
    owner = secrets.token_bytes(8)
    claimed = store.begin(sent, owner, lock_ms)
    if claimed.state is RequestState.OTHER:
        raise KeyReused
    if claimed.state is RequestState.UNDER_WAY:
        raise KeyInUse(claimed.left_ms)
    if claimed.state is RequestState.OVER_QUOTA:
        raise QuotaExceeded(BYTES_QUOTA, claimed.left_ms)
    if claimed.state is RequestState.ENDED:
        return claimed.answer
    since = claimed.begun_at + 1 if claimed.state is RequestState.AGAIN else 0
    # With the begin, for the same request a day later, when its key is free again, is another one.
    seed = f"{sent.tenant}\0{sent.key}\0{sent.fingerprint.hex()}\0{claimed.begun_at}"
    this = KeyedTry(seed, since, claimed.note, lambda note: store.note(sent, owner, note))
    try:
        packed = do(this)
    except (InvalidInput, QuotaExceeded):
        # An earlier try may have done it, before a time passed or a quota was full: that must stay known.
        is_new = claimed.state is RequestState.NEW
        _end(lambda: (store.forget if is_new else store.release)(sent, owner))
        raise
    except BaseException as error:
        rejection = _saved(error)
        if rejection is None:
            _end(lambda: store.release(sent, owner))
        else:
            _end(lambda: store.end(sent, owner, rejection))
        raise
    _end(lambda: store.end(sent, owner, packed))
    return packed


def _end(end: Callable[[], bool]) -> None:
    try:
        if not end():
            log.warning("a request outlived its time limit, and another request has taken its Idempotency-Key")
    except (StoreUnavailable, StoreMisused):  # the request is done all the same; its key is free when its time is over
        log.warning("the answer to a request with an Idempotency-Key could not be stored", exc_info=True)


def _saved(error: BaseException) -> bytes | None:
    """Answer to store for an error; None for a fault, after which the same request may be tried again."""
    problem = problems.problem_of(error) if isinstance(error, Exception) else None
    return _pack(problem_response(problem)) if problem and problem.status < 500 else None


def _pack(response: Response[Any]) -> bytes:
    body = response.body
    text = body if body is None or isinstance(body, str) else json.dumps(body, separators=(",", ":"))
    return zlib.compress(json.dumps([response.status_code, response.headers, text]).encode())


def _unpack(answer: bytes) -> Response[Any]:
    status, headers, text = json.loads(zlib.decompress(answer))
    return Response(status, None, text, headers)
