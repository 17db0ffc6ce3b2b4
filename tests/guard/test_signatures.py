"""Signatures of webhooks: made and verified here as Standard Webhooks' own library does it, and no others."""

import ast
import base64
import inspect
import json
from collections.abc import Mapping
from datetime import UTC, datetime

import pytest
from standardwebhooks import Webhook

from duecourse import webhooks
from duecourse.errors import WrongSignature
from duecourse.guard.signing_secrets import check_secret, new_secret
from duecourse.webhooks import ID, SIGNATURE, TIMESTAMP, sign, verify

NOW = 1_790_000_000
KEY, OTHER = new_secret(), new_secret()
BODY = json.dumps({"order": "ü", "total": 1.5}, ensure_ascii=False).encode()
SHORT, LONG = (f"whsec_{base64.b64encode(bytes(size)).decode()}" for size in (23, 65))


def signed(id: str = "order-42:7", at: int = NOW, body: bytes = BODY, *secrets: str) -> dict[str, str]:
    return {ID: id, TIMESTAMP: str(at), SIGNATURE: sign(id, at, body, secrets or [KEY])}


def verified(headers: Mapping[str, str], body: bytes | str = BODY, secrets: object = KEY, now: float = NOW) -> str:
    return verify(body, headers, secrets, now=lambda: now)  # type: ignore[arg-type]


def test_the_library_verifies_what_is_signed_here() -> None:
    now = int(datetime.now(UTC).timestamp())
    assert Webhook(KEY).verify(BODY, signed(at=now)) == json.loads(BODY)
    assert Webhook(OTHER).verify(BODY, signed("a:1", now, BODY, KEY, OTHER)) == json.loads(BODY)


def test_what_the_library_signs_is_verified_here() -> None:
    signature = Webhook(KEY).sign("msg_2KWPBgLlAfxdpx2AI54pPJ85f4W", datetime.fromtimestamp(NOW, UTC), BODY.decode())
    headers = {ID: "msg_2KWPBgLlAfxdpx2AI54pPJ85f4W", TIMESTAMP: str(NOW), SIGNATURE: signature}
    assert verified(headers) == "msg_2KWPBgLlAfxdpx2AI54pPJ85f4W"


def test_the_specifications_own_example_of_a_signature() -> None:
    """From the Standard Webhooks libraries' own tests: the same in each language."""
    secret, id, at = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330
    assert sign(id, at, b'{"test": 2432232314}', [secret]) == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_names_of_headers_are_taken_in_any_case_and_a_body_as_text_too() -> None:
    headers = {name.title(): value for name, value in signed().items()}
    assert verified(headers, BODY.decode()) == "order-42:7"


@pytest.mark.parametrize("known", [[KEY], [OTHER], [KEY, OTHER], [new_secret(), OTHER]])
def test_each_of_two_secrets_is_enough_while_they_change(known: list[str]) -> None:
    assert verified(signed("a:1", NOW, BODY, KEY, OTHER), secrets=known) == "a:1"
    assert verified(signed("a:1", NOW, BODY, known[-1]), secrets=[*known, new_secret()]) == "a:1"


def flipped(text: str) -> str:
    return text[:-3] + ("A" if text[-3] != "A" else "B") + text[-2:]


SIGNED = signed()
FORGED: dict[str, tuple[dict[str, str], bytes]] = {
    "another body": (SIGNED, BODY + b" "),
    "a body cut short": (SIGNED, BODY[:-1]),
    "no body": (SIGNED, b""),
    "a body that is no text": (SIGNED, b"\xff\xfe"),
    "another id": (SIGNED | {ID: "order-43:7"}, BODY),
    "no id": (SIGNED | {ID: ""}, BODY),
    "another time": (SIGNED | {TIMESTAMP: str(NOW + 1)}, BODY),
    "a time that is none": (SIGNED | {TIMESTAMP: "now"}, BODY),
    "a time with a fraction": (SIGNED | {TIMESTAMP: f"{NOW}.0"}, BODY),
    "a time in other digits": (SIGNED | {TIMESTAMP: "١٧٩٠٠٠٠٠٠٠"}, BODY),
    "a time that is none at all": (SIGNED | {TIMESTAMP: "nan"}, BODY),
    "another secret's signature": (signed("order-42:7", NOW, BODY, OTHER), BODY),
    "a bit of the signature": (SIGNED | {SIGNATURE: flipped(SIGNED[SIGNATURE])}, BODY),
    "another version": (SIGNED | {SIGNATURE: SIGNED[SIGNATURE].replace("v1,", "v1a,")}, BODY),
    "no version": (SIGNED | {SIGNATURE: SIGNED[SIGNATURE].removeprefix("v1,")}, BODY),
    "an empty signature": (SIGNED | {SIGNATURE: "v1,"}, BODY),
    "no signature": (SIGNED | {SIGNATURE: ""}, BODY),
    "a signature that is no ASCII": (SIGNED | {SIGNATURE: "v1,ü"}, BODY),
    "a lone surrogate": (SIGNED | {SIGNATURE: "v1,\ud800"}, BODY),
    "too many digits": (SIGNED | {TIMESTAMP: "9" * 400}, BODY),
}


@pytest.mark.parametrize("attempt", FORGED)
def test_what_was_changed_is_rejected(attempt: str) -> None:
    headers, body = FORGED[attempt]
    with pytest.raises(WrongSignature):
        verified(headers, body)


@pytest.mark.parametrize("name", [ID, TIMESTAMP, SIGNATURE])
def test_a_missing_header_is_named(name: str) -> None:
    with pytest.raises(WrongSignature, match=name):
        verified({other: value for other, value in SIGNED.items() if other != name})


def test_each_signature_is_compared_with_each_in_constant_time() -> None:
    """The code is looked at: on a busy machine, time shows nothing."""
    found = list(ast.walk(ast.parse(inspect.getsource(webhooks._is_signed))))
    assert [one.func.id for one in found if isinstance(one, ast.Call) and isinstance(one.func, ast.Name)] == [
        "any",
        "compare_digest",
    ]
    assert not any(isinstance(one, ast.Compare | ast.GeneratorExp) for one in found), (
        "these end at the first byte or pair"
    )


@pytest.mark.parametrize(("late_s", "good"), [(0, True), (300, True), (-300, True), (301, False), (-301, False)])
def test_a_replay_is_too_old_after_five_minutes_and_a_time_to_come_too_new(late_s: int, *, good: bool) -> None:
    if good:
        assert verified(SIGNED, now=NOW + late_s) == "order-42:7"
        return
    with pytest.raises(WrongSignature, match="too old or too new"):
        verified(SIGNED, now=NOW + late_s)
    assert verify(BODY, SIGNED, KEY, tolerance=301, now=lambda: NOW + late_s) == "order-42:7"
    with pytest.raises(WrongSignature):
        verify(BODY, SIGNED, KEY, tolerance=float("nan"), now=lambda: NOW + late_s)


@pytest.mark.parametrize("name", [ID, TIMESTAMP, SIGNATURE])
def test_a_header_that_is_no_text_is_missing(name: str) -> None:
    for value in (signed()[name].encode(), [signed()[name]], None, 7):
        with pytest.raises(WrongSignature, match=name):
            verified({**signed(), name: value})  # type: ignore[dict-item]
    raw = {name.encode(): value for name, value in signed().items()}
    with pytest.raises(WrongSignature, match=ID):
        verified(raw)  # type: ignore[arg-type]


def test_a_signed_text_cannot_be_cut_elsewhere_into_another_time() -> None:
    """The library takes it: the specification forbids dots in an id, and leaves that to the sender."""
    headers = signed("a:7", NOW, b'"x.1790009999.y"')
    cut = {ID: 'a:7.1790000000."x', TIMESTAMP: "1790009999", SIGNATURE: headers[SIGNATURE]}
    assert sign(cut[ID], 1790009999, b'y"', [KEY]) == headers[SIGNATURE], "the same text is signed"
    with pytest.raises(WrongSignature, match="a dot in it"):
        verified(cut, b'y"', now=1790009999)


WRONG = {
    "": "nothing", "whsec_": "no key", SHORT: "short", LONG: "long", KEY.removeprefix("whsec_"): "no prefix",
    KEY[:-1]: "no padding", KEY + " ": "a space", "whsec_" + "*" * 44: "no base64", KEY.upper(): "another prefix",
    "whsec_" + "é" * 44: "no ASCII",
}  # fmt: skip


@pytest.mark.parametrize("secret", WRONG, ids=list(WRONG.values()))
def test_a_malformed_secret_is_an_error_that_does_not_hold_it(secret: str) -> None:
    for given in (secret, [KEY, secret]):
        with pytest.raises(ValueError, match="must be whsec_ and the base64 of 24 to 64 bytes") as caught:
            verified(SIGNED, secrets=given)
        assert len(secret) < 7 or secret not in str(caught.value)


def test_no_secret_at_all_verifies_nothing() -> None:
    with pytest.raises(ValueError, match="at least one secret"):
        verified(SIGNED, secrets=[])


def test_a_new_secret_is_fit_and_no_other_is_the_same() -> None:
    made = {new_secret() for _ in range(100)}
    assert len({check_secret(secret) for secret in made}) == 100
