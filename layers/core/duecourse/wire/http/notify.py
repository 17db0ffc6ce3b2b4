"""Receiver of a completion notification, in requests and answers."""

from typing import Annotated, Literal, NotRequired, Self

from pydantic import ConfigDict, Field, model_validator
from typing_extensions import TypedDict

from duecourse.domain.masking import masked_text
from duecourse.domain.notification import Notify, is_url
from duecourse.wire.http.fields import Name, Strict, about, given, reject_fields
from duecourse.wire.http.kinds import Auth, Url


class NotifyDone(Strict):
    """Receiver of the completion notification: a URL, or the target of a kind.

    A task of its own delivers the notification, with retries.
    """

    model_config = ConfigDict(
        json_schema_extra={"oneOf": [given("url"), given("target")], "not": given("target", "auth")}
    )

    url: Url | None = Field(
        None,
        description="URL that receives a POST with `type`, `timestamp` and `data`, as in Standard Webhooks.",
        examples=["https://example.com/hooks/tasks"],
    )
    target: Name | None = Field(
        None,
        description="Kind from DUECOURSE_TARGETS whose target receives a task with the payload `type`, "
        "`timestamp` and `data`.",
        examples=["audit"],
    )
    include: Annotated[list[Literal["payload", "result"]], Field(max_length=2)] = Field(
        default_factory=list,
        description="Parts of the task to add to the notification: `payload`, with credentials shown as `•••`, and "
        "`result`. The notification always carries the rest, `history` included.",
        examples=[["payload", "result"]],
    )

    auth: Auth = None

    @model_validator(mode="after")
    def _one_of_them(self) -> Self:
        if (self.url is None) == (self.target is None):
            raise reject_fields("give either url or target", "url", "target")
        if self.auth and not self.url:
            raise reject_fields("needs a url: a target is not called over HTTP", "auth")
        return self

    def text(self) -> str:
        """The same as a record keeps it."""
        include = tuple(dict.fromkeys(self.include))
        return Notify(self.url or self.target or "", include, self.auth or "").text()


class NotifyView(TypedDict):
    """Receiver of the completion notification, as it is shown."""

    url: NotRequired[Annotated[str, about("URL that receives a POST; credentials in it are shown as `•••`.")]]
    target: NotRequired[Annotated[str, about("Kind whose target receives the notification.", "audit")]]
    include: NotRequired[Annotated[list[str], about("Parts of the task added to the notification.", ["payload"])]]
    auth: NotRequired[Annotated[str, about("Name of the credential that the POST carries.", "billing")]]


def show_notify(text: str) -> NotifyView:
    """Receiver of a completion notification in the words of the HTTP API."""
    notify = Notify.of(text)
    view: NotifyView = {"url": masked_text(notify.address)} if is_url(text) else {"target": notify.address}
    if notify.include:
        view["include"] = list(notify.include)
    if notify.auth:
        view["auth"] = notify.auth
    return view
