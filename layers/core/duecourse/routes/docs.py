"""`/openapi.json` and `/docs`: what the API says of itself, and a page to read it with that needs nothing else."""

import base64
import json
import re
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from aws_lambda_powertools.event_handler import Response
from aws_lambda_powertools.event_handler.content_types import APPLICATION_JSON

from duecourse.routes.api import Api
from duecourse.routes.parts import needs

DOCUMENT = Path(__file__).with_name("openapi.json")
"""The OpenAPI document, written by `make reference`: it is the same for every request."""
POLICY = (
    "default-src 'none'; script-src {scripts}; style-src 'unsafe-inline'; img-src data:; font-src data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Swagger UI sets styles on its elements as it goes; its scripts are the page's own, named by their hashes."""
ITSELF = 'currentUrl.pathname + "?format=json"'
"""Path at which Powertools' page expects the document, which has a route of its own here."""
SCRIPT = re.compile(r"<script>(.*?)</script>", re.DOTALL)


def serve(app: Api) -> None:
    """Add both routes, which are no part of the document."""

    @app.get("/openapi.json", include_in_schema=False, compress=True, enable_validation=False)
    @needs(None)
    def openapi() -> Response[Any]:
        return Response(200, APPLICATION_JSON, document())

    @app.get("/docs", include_in_schema=False, compress=True, enable_validation=False)
    @needs(None)
    def docs() -> Response[Any]:
        page, policy = _page()
        headers: dict[str, str | list[str]] = {
            "Content-Security-Policy": policy,
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
        }
        return Response(200, "text/html; charset=utf-8", page, headers)


@cache
def document() -> str:
    """The document as compact JSON text."""
    return json.dumps(json.loads(DOCUMENT.read_bytes()), separators=(",", ":"), ensure_ascii=False)


@cache
def _page() -> tuple[str, str]:
    """The page, with the assets that Powertools brings along in it, and its Content-Security-Policy."""
    from aws_lambda_powertools.event_handler.openapi import swagger_ui

    assets = Path(swagger_ui.__file__).parent
    script, style = (assets.joinpath(name).read_text() for name in ("swagger-ui-bundle.min.js", "swagger-ui.min.css"))
    spec = document().replace("</", "<\\/")
    page = swagger_ui.generate_swagger_html(spec, script, style, swagger_base_url="", oauth2_config=None)
    page = page.replace(ITSELF, '"openapi.json"')
    hashes = (base64.b64encode(sha256(found.encode()).digest()).decode() for found in SCRIPT.findall(page))
    return page, POLICY.format(scripts=" ".join(f"'sha256-{one}'" for one in hashes))
