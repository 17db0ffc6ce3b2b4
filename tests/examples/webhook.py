"""Deliver a signed webhook, and verify the signature where it is received.

Nothing is sent, and the clock is moved by hand. Run the program by itself:

    python webhook.py

The program prints:

    204 {'paid': 20}
    401 no signature in webhook-signature fits this body and secret
    401 webhook-timestamp is missing, too old or too new
"""

from collections.abc import Mapping
from datetime import datetime

from duecourse import webhooks
from duecourse.errors import WrongSignature
from duecourse.testing import Duecourse


def receive(body: bytes, headers: Mapping[str, str], secret: str, now: datetime) -> str:
    """Answer one request. Without `now`, `verify` takes the time of this machine."""
    try:
        webhooks.verify(body, headers, secret, now=now.timestamp)
    except WrongSignature as error:
        return f"401 {error}"
    return "204"


with Duecourse() as duecourse:
    payload = {"url": "https://shop.example.com/hooks", "body": {"paid": 20}}
    duecourse.add("webhook", payload, delay="1h")
    duecourse.advance("1h")
    [call] = duecourse.sent.webhooks
    secret = duecourse.signing_secret

    print(receive(call.body, call.headers, secret, duecourse.now), call.json)
    print(receive(call.body.replace(b"20", b"90"), call.headers, secret, duecourse.now))
    duecourse.advance("10m")
    print(receive(call.body, call.headers, secret, duecourse.now))
