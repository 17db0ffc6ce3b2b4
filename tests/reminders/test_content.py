"""A reminder's templates and data: in each message's payload, within a bound, whatever becomes of the others."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from duecourse.app import App
from duecourse.base.masking import MASK
from duecourse.errors import BeyondQuota, InvalidInput, QuotaExceeded, SendRejected, StoreUnavailable
from duecourse.ledger.embedded.ledger import EmbeddedLedger
from duecourse.ledger.operation_types import AddReply, UniqueCondition
from duecourse.ledger.reminder import CONTENT, QUEUE, Channel, Recipient, Reminder
from duecourse.ledger.sharding import Sharding
from duecourse.ledger.task import NewTask, Status, Task
from duecourse.reminders.one_off import MAX_BYTES
from duecourse.reminders.send import Message
from duecourse.settings import Settings
from tests.support.clock import START, HandClock
from tests.support.engine import ample
from tests.support.seals import LOCAL_KEY
from tests.support.wired import wired_with

MINUTE = 60_000
HOUR = 60 * MINUTE
DAY = 24 * HOUR
STARTS = START + 10 * DAY
PEOPLE = tuple(Recipient(f"R{n}", Channel.EMAIL, f"r{n}@example.com") for n in range(10))
LONG = "x" * 4_000
REVIEW = Reminder(
    "review", "Review", (HOUR, MINUTE), PEOPLE, LONG + " {{ data.room }}", "", {"room": "4"}, starts_at=STARTS
)
MESSAGES = len(PEOPLE) * 2


class Post:
    """A Sender that keeps each message, but rejects those to some addresses."""

    def __init__(self) -> None:
        self.sent: list[Message] = []
        self.rejected: set[str] = set()

    def send(self, message: Message) -> str:
        if message.to in self.rejected:
            raise SendRejected("no such address")
        self.sent.append(message)
        return str(len(self.sent))


class Ledger(EmbeddedLedger):
    """A ledger that fails at an add of messages when told to: all before it has happened."""

    broken = False

    def add(
        self, tasks: Sequence[NewTask], *, echo: bool = False, unique: UniqueCondition | None = None, mark: bytes = b""
    ) -> list[AddReply]:
        if self.broken and unique:
            raise StoreUnavailable
        return super().add(tasks, echo=echo, unique=unique, mark=mark)


class Scene:
    """An App on a ledger in memory, whose mails are kept."""

    def __init__(self, app: App, ledger: Ledger, clock: HandClock, post: Post) -> None:
        self.app, self.ledger, self.clock, self.post = app, ledger, clock, post
        self.reminders = app.one_off_reminders

    def run(self) -> None:
        """A tick: upkeep, and a drain of what is due."""
        self.app.sweeper.tick(self.app.sweeper.survey(ample), ample)

    def run_at(self, at: int) -> None:
        """A tick then, and one some minutes before: a clock that has gone on by days is not believed at once."""
        for then in (at - 11 * MINUTE, at):
            self.clock.at = max(self.clock.at, then)
            self.run()

    def messages(self, id: str = "review") -> list[Task]:
        return self.ledger.group(QUEUE, id)


@pytest.fixture(params=[1, 5], ids=["one shard", "five shards"])
def scene(request: pytest.FixtureRequest, clock: HandClock) -> Iterator[Scene]:
    ledger, post = Ledger(clock, Sharding({QUEUE: request.param})), Post()
    with wired_with(Settings(), ledger=ledger, senders={Channel.EMAIL: post}) as app:
        yield Scene(app, ledger, clock, post)


def test_each_message_holds_the_content_and_is_sent_whole(scene: Scene) -> None:
    scene.reminders.add(REVIEW)
    assert len(scene.messages()) == MESSAGES
    assert {field: scene.messages()[0].payload[field] for field in CONTENT} == REVIEW.content
    scene.run_at(STARTS - MINUTE)
    assert sorted(message.to for message in scene.post.sent) == sorted(2 * [one.address for one in PEOPLE])
    assert {message.text for message in scene.post.sent} == {LONG + " 4\n"}


def test_an_add_that_was_cut_off_leaves_nothing_and_the_same_add_makes_it_whole(scene: Scene) -> None:
    scene.ledger.broken = True
    with pytest.raises(StoreUnavailable):
        scene.reminders.add(REVIEW)
    assert scene.ledger.shards() == []
    scene.ledger.broken = False
    assert scene.reminders.add(REVIEW).created
    scene.run_at(STARTS - MINUTE)
    assert len(scene.post.sent) == MESSAGES


def test_a_dead_message_has_its_content_whenever_it_is_replayed(scene: Scene) -> None:
    scene.post.rejected = {PEOPLE[0].address}
    early = replace(REVIEW, leads_ms=(9 * DAY, MINUTE))
    scene.reminders.add(early)
    scene.run_at(STARTS - 9 * DAY)
    [dead] = [task for task in scene.messages() if task.status is Status.DEAD]
    scene.post.rejected = set()
    scene.run_at(STARTS - 2 * MINUTE)
    scene.app.tasks.replay(QUEUE, dead.id)
    scene.run()
    assert scene.post.sent[-1] == Message(PEOPLE[0].address, "Review", LONG + " 4\n")


def test_a_dead_message_of_a_reminder_that_was_replaced_says_what_it_said(scene: Scene) -> None:
    scene.post.rejected = {PEOPLE[0].address}
    scene.reminders.add(replace(REVIEW, leads_ms=(9 * DAY,)))
    scene.run_at(STARTS - 9 * DAY)
    [dead] = [task for task in scene.messages() if task.status is Status.DEAD]
    scene.post.rejected = set()
    assert scene.reminders.add(replace(REVIEW, leads_ms=(MINUTE,), data={"room": "5"})).created
    scene.app.tasks.replay(QUEUE, dead.id)
    scene.run()
    assert scene.post.sent[-1].text == LONG + " 4\n"
    scene.run_at(STARTS - MINUTE)
    assert {message.text for message in scene.post.sent[-10:]} == {LONG + " 5\n"}


def test_a_moved_reminder_has_its_content_for_the_new_start(scene: Scene) -> None:
    scene.reminders.add(REVIEW)
    scene.reminders.move("review", STARTS + 90 * DAY)
    for day in (1, 2, 30, 60):
        scene.run_at(STARTS + day * DAY)
    assert scene.post.sent == []
    scene.run_at(STARTS + 90 * DAY - MINUTE)
    assert {message.text for message in scene.post.sent} == {LONG + " 4\n"}


def test_a_reminder_is_shown_and_previewed_with_its_content(scene: Scene) -> None:
    scene.reminders.add(REVIEW)
    assert scene.reminders.get("review").content == REVIEW.content
    assert {shown.text for shown in scene.reminders.preview_standing("review")} == {LONG + " 4\n"}


def test_credentials_in_a_content_are_sealed_shown_to_nobody_and_sent(clock: HandClock) -> None:
    ledger, post = Ledger(clock), Post()
    secret = replace(REVIEW, message=LONG + " {{ data.token }}", data={"token": "hidden-9f2e"})
    with wired_with(Settings(), ledger=ledger, wrapping=LOCAL_KEY, senders={Channel.EMAIL: post}) as app:
        scene = Scene(app, ledger, clock, post)
        scene.reminders.add(secret)
        assert not scene.reminders.add(secret).created
        assert "hidden" not in "".join(task.payload_json for task in scene.messages())
        assert scene.reminders.get("review").content["data"] == {"token": MASK}
        assert {shown.text for shown in scene.reminders.preview_standing("review")} == {LONG + " hidden-9f2e\n"}
        scene.reminders.move("review", STARTS + DAY)
        scene.run_at(STARTS + DAY - MINUTE)
    assert {message.text for message in post.sent} == {LONG + " hidden-9f2e\n"}


def test_each_message_counts_its_content_towards_a_quota_of_bytes(ledger: EmbeddedLedger) -> None:
    with wired_with(Settings(), ledger=ledger) as app:
        ledger.configure(QUEUE, {"tenant_max_bytes": MESSAGES * len(LONG)})
        with pytest.raises(BeyondQuota, match="recipients"):
            app.one_off_reminders.add(REVIEW, "acme")
        assert ledger.group(QUEUE, "review", "acme") == []
        ledger.configure(QUEUE, {"tenant_max_bytes": MESSAGES * (len(LONG) + 400)})
        assert app.one_off_reminders.add(REVIEW, "acme").created


def test_a_quota_of_as_many_tasks_as_messages_holds_them(ledger: EmbeddedLedger) -> None:
    with wired_with(Settings(), ledger=ledger) as app:
        ledger.configure(QUEUE, {"tenant_max_pending": MESSAGES})
        assert app.one_off_reminders.add(REVIEW, "acme").created


def test_a_reminder_that_waits_for_its_quota_is_added_after_that_wait(clock: HandClock, ledger: EmbeddedLedger) -> None:
    with wired_with(Settings(), ledger=ledger) as app:
        ledger.configure(QUEUE, {"tenant_adds_per_minute": MESSAGES})
        assert app.one_off_reminders.add(replace(REVIEW, id="other"), "acme").created
        with pytest.raises(QuotaExceeded) as rejected:
            app.one_off_reminders.add(REVIEW, "acme")
        clock.advance(rejected.value.wait_ms)
        assert app.one_off_reminders.add(REVIEW, "acme").created


TOO_MUCH = "x" * (MAX_BYTES // MESSAGES)
LARGE = {
    "subject": replace(REVIEW, subject=TOO_MUCH),
    "message": replace(REVIEW, message=TOO_MUCH),
    "html": replace(REVIEW, html=TOO_MUCH),
    "data": replace(REVIEW, data={"text": TOO_MUCH}),
    "recipients": replace(REVIEW, recipients=tuple(replace(one, name=TOO_MUCH) for one in PEOPLE)),
}


@pytest.mark.parametrize("field", LARGE)
def test_messages_over_the_bound_are_rejected_by_their_largest_field(scene: Scene, field: str) -> None:
    for verb in (lambda: scene.reminders.add(LARGE[field]), lambda: scene.reminders.preview(LARGE[field])):
        with pytest.raises(InvalidInput) as rejected:
            verb()
        [problem] = rejected.value.problems
        assert problem.field == field
        assert re.search(rf"^500,.* bytes in each of 20 messages.* over {MAX_BYTES:,}: shorten it", problem.problem)
    assert scene.ledger.shards() == []
