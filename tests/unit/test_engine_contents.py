"""A reminder's templates and data: stored once for many messages, and kept as long as one of them needs it."""

import json
from collections.abc import Iterator, Sequence

import pytest

from duecourse.adapters.embedded.store import MemoryStore
from duecourse.domain.content import KIND, hash_of, id_of, named_by, plain_digest
from duecourse.domain.masking import MASK
from duecourse.domain.pages import Wanted
from duecourse.domain.reminder import QUEUE, Channel, Recipient, Reminder
from duecourse.domain.shards import Sharding
from duecourse.domain.task import NewTask, Status, Task, dump_json
from duecourse.errors import BeyondQuota, QuotaExceeded, SendRejected, StoreUnavailable, TaskNotFound
from duecourse.kinds.reminder import NO_CONTENT
from duecourse.ports.sender import Message
from duecourse.ports.tasks import AddReply, Alone
from duecourse.settings import Settings
from duecourse.wiring import App
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
REVIEW = Reminder("review", "Review", STARTS, (HOUR, MINUTE), PEOPLE, LONG + " {{ data.room }}", "", {"room": "4"})
SMALL = REVIEW._replace(id="small", recipients=PEOPLE[:1], message="Room {{ data.room }}")


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


class Ledger(MemoryStore):
    """A store that fails at an add of messages when told to: all before it has happened."""

    broken = False

    def add(self, tasks: Sequence[NewTask], *, echo: bool = False, alone: Alone | None = None) -> list[AddReply]:
        if self.broken and alone:
            raise StoreUnavailable
        return super().add(tasks, echo=echo, alone=alone)


class Scene:
    """An App on a ledger in memory, whose mails are kept."""

    def __init__(self, app: App, store: Ledger, clock: HandClock, post: Post) -> None:
        self.app, self.store, self.clock, self.post = app, store, clock, post
        self.reminders = app.reminders

    def run(self) -> None:
        """A tick: upkeep, and a drain of what is due."""
        self.app.sweeper.tick(self.app.sweeper.survey(ample), ample)

    def run_at(self, at: int) -> None:
        """A tick then, and one some minutes before: a clock that has gone on by days is not believed at once."""
        for then in (at - 11 * MINUTE, at):
            self.clock.at = max(self.clock.at, then)
            self.run()

    def contents(self) -> list[Task]:
        """The tasks that hold a content, in any state."""
        return self.store.page(QUEUE, Wanted(kind=KIND), None, 100).tasks

    def messages(self, id: str = "review") -> list[Task]:
        return self.store.group(QUEUE, id)


@pytest.fixture(params=[1, 5], ids=["one shard", "five shards"])
def scene(request: pytest.FixtureRequest, clock: HandClock) -> Iterator[Scene]:
    store, post = Ledger(clock, Sharding({QUEUE: request.param})), Post()
    with wired_with(Settings(), store=store, senders={Channel.EMAIL: post}) as app:
        yield Scene(app, store, clock, post)


def test_many_messages_have_one_content_and_each_is_sent_whole(scene: Scene) -> None:
    scene.reminders.add(REVIEW)
    [content] = scene.contents()
    assert len(content.payload_json) > len(LONG)
    assert {len(task.payload_json) < 250 for task in scene.messages()} == {True}
    scene.run_at(STARTS - MINUTE)
    assert sorted(message.to for message in scene.post.sent) == sorted(2 * [one.address for one in PEOPLE])
    assert {message.text for message in scene.post.sent} == {LONG + " 4\n"}


def test_few_messages_or_small_ones_hold_their_own_and_cost_no_task_more(scene: Scene) -> None:
    scene.reminders.add(SMALL)
    scene.reminders.add(REVIEW._replace(id="pair", leads_ms=(MINUTE,), recipients=PEOPLE[:3]))
    assert scene.contents() == []
    assert [task.payload["message"] for task in scene.messages("small")] == 2 * [SMALL.message]


def test_a_content_is_kept_for_a_dead_message_and_forgotten_after_the_last(scene: Scene) -> None:
    scene.post.rejected = {PEOPLE[0].address}
    scene.reminders.add(REVIEW)
    scene.run_at(STARTS - MINUTE)
    for day in range(1, 29):
        scene.run_at(STARTS + day * DAY)
    assert [task.status for task in scene.messages()] == 2 * [Status.DEAD]
    [content] = scene.contents()
    assert (content.status, content.due_at) == (Status.SCHEDULED, STARTS + 29 * DAY)
    for day in range(29, 33):
        scene.run_at(STARTS + day * DAY)
    assert (scene.messages(), scene.contents()) == ([], [])


def test_a_content_without_messages_ends_by_itself(scene: Scene) -> None:
    """As where a process was killed after the first of the two steps of an add."""
    scene.store.broken = True
    with pytest.raises(StoreUnavailable):
        scene.reminders.add(REVIEW)
    assert (len(scene.contents()), scene.messages()) == (1, [])
    for day in range(1, 4):
        scene.run_at(START + day * DAY)
    assert scene.contents() == []


def test_an_add_that_was_cut_off_is_finished_by_the_same_add(scene: Scene) -> None:
    scene.store.broken = True
    with pytest.raises(StoreUnavailable):
        scene.reminders.add(REVIEW)
    scene.store.broken = False
    assert scene.reminders.add(REVIEW).created
    scene.run_at(STARTS - MINUTE)
    assert len(scene.post.sent) == 20


def test_the_content_of_a_cancelled_reminder_goes_with_its_messages(scene: Scene) -> None:
    scene.reminders.add(REVIEW._replace(starts_at=START + 300 * DAY))
    scene.reminders.cancel("review")
    for day in range(1, 5):
        scene.run_at(START + day * DAY)
    assert (scene.messages(), scene.contents()) == ([], [])


def test_a_dead_message_has_its_content_whenever_it_is_replayed(scene: Scene) -> None:
    scene.post.rejected = {PEOPLE[0].address}
    early = REVIEW._replace(leads_ms=(9 * DAY, MINUTE))
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
    scene.reminders.add(REVIEW._replace(leads_ms=(9 * DAY,)))
    scene.run_at(STARTS - 9 * DAY)
    [dead] = [task for task in scene.messages() if task.status is Status.DEAD]
    scene.post.rejected = set()
    assert scene.reminders.add(REVIEW._replace(leads_ms=(MINUTE,), data={"room": "5"})).created
    assert len(scene.contents()) == 2
    scene.app.tasks.replay(QUEUE, dead.id)
    scene.run()
    assert scene.post.sent[-1].text == LONG + " 4\n"
    scene.run_at(STARTS - MINUTE)
    assert {message.text for message in scene.post.sent[-10:]} == {LONG + " 5\n"}


def test_a_content_that_looks_for_messages_while_the_same_is_added_again_stays(scene: Scene) -> None:
    scene.store.broken = True
    with pytest.raises(StoreUnavailable):
        scene.reminders.add(REVIEW)
    [content] = scene.contents()
    scene.clock.at = content.due_at
    shard = scene.store.shard_of(QUEUE, content.id)
    [leased] = scene.store.claim(shard, 1, lease_ms=30_000).tasks
    ended = scene.app.contents.look(leased)
    scene.store.broken = False
    later = scene.clock.at + 5 * DAY
    scene.reminders.add(REVIEW._replace(starts_at=later))
    scene.store.settle(shard, [scene.app.runner(lambda _name: None).settlement(leased, ended)])
    scene.run_at(later - MINUTE)
    assert len(scene.post.sent) == 20
    assert {message.text for message in scene.post.sent} == {LONG + " 4\n"}


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


def as_before(store: MemoryStore, reminder: Reminder) -> None:
    """Add a reminder as earlier releases did: each message with a copy."""
    tasks = reminder.tasks(store.now())
    own = [dump_json(_own(reminder, json.loads(task.payload))) for task in tasks]
    store.add([task._replace(payload=payload) for task, payload in zip(tasks, own, strict=True)])


def _own(reminder: Reminder, payload: dict[str, object]) -> dict[str, object]:
    first, (recipient, lead) = {"reminder": reminder.id}, (payload["recipient"], payload["lead_ms"])
    return {**first, **reminder.content, "recipient": recipient, "lead_ms": lead}


def test_messages_of_an_earlier_release_hold_their_own_and_are_sent_moved_and_known(scene: Scene) -> None:
    as_before(scene.store, REVIEW)
    assert not scene.reminders.add(REVIEW).created
    moved = scene.reminders.move("review", STARTS + DAY)
    assert len(moved.tasks) == 20
    assert {named_by(task.payload) for task in scene.messages()} == {""}
    scene.run_at(STARTS + DAY - MINUTE)
    assert {message.text for message in scene.post.sent} == {LONG + " 4\n"}


def test_the_same_add_brings_a_lost_content_back(scene: Scene) -> None:
    scene.reminders.add(REVIEW)
    [content] = scene.contents()
    scene.store.cancel(QUEUE, [content.id])
    scene.run_at(START + 2 * DAY)
    assert scene.contents() == []
    assert not scene.reminders.add(REVIEW).created
    scene.run_at(STARTS - MINUTE)
    assert len(scene.post.sent) == 20


def test_a_message_whose_content_is_lost_is_tried_again_and_says_why(scene: Scene) -> None:
    scene.reminders.add(REVIEW)
    [content] = scene.contents()
    scene.store.cancel(QUEUE, [content.id])
    scene.run_at(START + 2 * DAY)
    scene.run_at(STARTS - HOUR)
    failed = [task for task in scene.messages() if task.attempt > 1]
    assert {task.error for task in failed} == {NO_CONTENT}
    with pytest.raises(TaskNotFound, match="no content"):
        scene.reminders.get("review")


def test_credentials_in_a_content_are_sealed_shown_to_nobody_and_sent(clock: HandClock) -> None:
    store, post = Ledger(clock), Post()
    secret = REVIEW._replace(message=LONG + " {{ data.token }}", data={"token": "hidden-9f2e"})
    with wired_with(Settings(), store=store, wrapping=LOCAL_KEY, senders={Channel.EMAIL: post}) as app:
        scene = Scene(app, store, clock, post)
        scene.reminders.add(secret)
        assert not scene.reminders.add(secret).created
        [content] = scene.contents()
        assert "hidden" not in content.payload_json
        assert hash_of(secret.content, plain_digest) not in content.id, "the token could be guessed by it"
        assert "hidden" not in str(scene.messages())
        assert scene.reminders.get("review").content["data"] == {"token": MASK}
        assert {shown.text for shown in scene.reminders.preview_standing("review")} == {LONG + " hidden-9f2e\n"}
        scene.reminders.move("review", STARTS + DAY)
        scene.run_at(STARTS + DAY - MINUTE)
    assert {message.text for message in post.sent} == {LONG + " hidden-9f2e\n"}


def test_a_content_over_a_quota_is_rejected_and_none_of_its_messages_is_added(scene: Scene) -> None:
    scene.store.configure(QUEUE, {"tenant_max_pending": 5})
    with pytest.raises(BeyondQuota, match="recipients"):
        scene.reminders.add(REVIEW, "acme")
    scene.store.configure(QUEUE, {"tenant_max_pending": 1_000, "tenant_max_bytes": 1_000})
    with pytest.raises(BeyondQuota, match="message"):
        scene.reminders.add(REVIEW._replace(id="other"), "acme")
    assert scene.store.group(QUEUE, "review", "acme") == scene.store.group(QUEUE, "other", "acme") == []


MESSAGES = len(PEOPLE) * 2


def test_a_quota_that_holds_the_messages_and_not_their_content_is_no_reason_to_wait() -> None:
    """With as many pending tasks as messages the content was in their way, whenever they came."""
    store = MemoryStore(HandClock())
    with wired_with(Settings(), store=store) as app:
        store.configure(QUEUE, {"tenant_max_pending": MESSAGES})
        with pytest.raises(BeyondQuota, match="tenant_max_pending"):
            app.reminders.add(REVIEW, "acme")
        store.configure(QUEUE, {"tenant_max_pending": MESSAGES + 1})
        assert app.reminders.add(REVIEW, "acme").created


def test_a_reminder_that_waits_for_its_quota_is_added_after_that_wait() -> None:
    """Each time that it was sent again its content was an add more, and the messages were one too many for ever."""
    clock = HandClock()
    store = MemoryStore(clock)
    with wired_with(Settings(), store=store) as app:
        store.configure(QUEUE, {"tenant_adds_per_minute": MESSAGES})
        with pytest.raises(QuotaExceeded) as rejected:
            app.reminders.add(REVIEW, "acme")
        clock.advance(rejected.value.wait_ms)
        assert app.reminders.add(REVIEW, "acme").created


def test_an_id_of_a_content_is_of_its_reminder_and_fits_what_ids_may_be() -> None:
    [task] = [one for one in [REVIEW._replace(id="r" * 64).content_task()] if one]
    assert task.id.startswith("r" * 64 + ":content:")
    assert len(task.id) < 128
    assert task.id == id_of("r" * 64, task.id.rpartition(":")[2])
