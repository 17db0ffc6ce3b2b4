"""The one account and region that is emulated, and how its things are named."""

ACCOUNT = "123456789012"
"""The emulator's default account."""
REGION = "us-east-1"
STACK = "duecourse"
STAGE = "$default"

CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "local",
    "AWS_SECRET_ACCESS_KEY": "local",
    "AWS_SESSION_TOKEN": "local",
    "AWS_REGION": REGION,
    "AWS_DEFAULT_REGION": REGION,
}
"""Dummies: nothing of the host's own credentials reaches a child."""


def arn(service: str, resource: str) -> str:
    """The ARN of a thing of the emulated account."""
    return f"arn:aws:{service}:{REGION}:{ACCOUNT}:{resource}"
