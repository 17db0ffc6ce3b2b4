"""The answers of `/schedules`."""

from typing import Annotated, Any, NotRequired

from typing_extensions import TypedDict

from duecourse.domain.masking import masked_payload
from duecourse.domain.schedule import Cron, Every, Fold, Gap, Missed, Overlap, Repeat, Schedule
from duecourse.domain.schedule_status import Passed, ScheduleStatus, Upcoming
from duecourse.domain.task import RetryPolicy, load_json
from duecourse.domain.times import format_duration, format_instant
from duecourse.wire.http.fields import ShownInstant, about
from duecourse.wire.http.notify import NotifyView, show_notify
from duecourse.wire.http.schedules import EXAMPLE


class UpcomingView(TypedDict):
    """Occurrence to come."""

    at: Annotated[ShownInstant, about("Nominal time, in UTC.")]
    local: Annotated[str, about("Nominal time in the schedule's zone.", "2026-11-26T09:00:00+01:00")]
    due_at: NotRequired[Annotated[ShownInstant, about("Due time, if `jitter` delays it.")]]
    clock_change: NotRequired[
        Annotated[bool, about("True if the zone's clocks changed since the time before it.", True)]
    ]


class PassedView(TypedDict):
    """Occurrence that has passed."""

    id: Annotated[str, about("Id of its task.", "daily-report@2026-11-26T08:00:00Z")]
    at: Annotated[ShownInstant, about("Nominal time, in UTC.")]
    state: Annotated[
        str, about("State of its task; `skipped` beside a running one; `missed` if nothing ran for it.", "done")
    ]
    stands_for: NotRequired[
        Annotated[
            int,
            about(
                "Number of times that it makes up for, itself included, if times before it were missed. Above 1,000 of"
                " `cron` or `rrule`, a lower bound.",
                3,
            ),
        ]
    ]


class RetryView(TypedDict):
    """Attempts and backoff, as they were asked for."""

    max_attempts: Annotated[int, about("Maximum attempts.", 10)]
    backoff: Annotated[str, about("Delay after the first failure.", "PT1S")]
    factor: Annotated[float, about("Multiplier applied to the delay after each failure.", 2.0)]
    max_backoff: Annotated[str, about("Upper bound for the delay.", "PT1H")]
    jitter: Annotated[bool, about("True if the delay is randomised.", True)]


class ScheduleView(TypedDict):
    """Schedule, with its next and its last occurrences."""

    id: Annotated[str, about("Id of the schedule.", "daily-report")]
    queue: Annotated[str, about("Queue of the occurrences.", "default")]
    kind: Annotated[str, about("Kind of the occurrences.", "webhook")]
    payload: Annotated[Any, about("Payload of each occurrence.", EXAMPLE["payload"])]
    repeat: Annotated[dict[str, Any], about("Rule by which the schedule comes again.", EXAMPLE["repeat"])]
    time_zone: Annotated[str, about("IANA time zone in which the rule is read.", "Europe/Vienna")]
    starts_at: Annotated[ShownInstant, about("Time before which no occurrence comes.")]
    until: NotRequired[Annotated[ShownInstant, about("Time after which no occurrence comes.")]]
    limit: NotRequired[Annotated[int, about("Number of occurrences after which the schedule ends.", 10)]]
    gap: Annotated[Gap, about("Treatment of a time that a change of the clocks leaves out.")]
    fold: Annotated[Fold, about("Treatment of a time that a change of the clocks repeats.")]
    gap_used: Annotated[Gap, about("Treatment in use: that of `gap`, or what `auto` means for this rule.", "shift")]
    fold_used: Annotated[Fold, about("Treatment in use: that of `fold`, or what `auto` means for this rule.", "first")]
    jitter: Annotated[str, about("Upper bound of the delay of an occurrence.", "PT0S")]
    missed: Annotated[Missed, about("Treatment of times that were missed.")]
    catch_up: Annotated[str, about("Age up to which missed times are made up for.", "PT1H")]
    overlap: Annotated[Overlap, about("Treatment of an occurrence beside a running one.")]
    retry: Annotated[RetryView, about("Attempts and backoff of an occurrence.")]
    deadline: NotRequired[Annotated[str, about("Time from its due time after which an occurrence is dead.", "PT1H")]]
    notify_done: NotRequired[Annotated[NotifyView, about("Receiver of a completion notification.")]]
    paused: Annotated[bool, about("True while nothing fires.", False)]
    file: NotRequired[Annotated[int, about("Number of the file of schedules that made it; absent for none.", 3)]]
    version: Annotated[int, about("Version of the schedule: 1, and 1 more for each change by a caller.", 1)]
    created_at: Annotated[ShownInstant, about("Time of the add.")]
    fired: Annotated[int, about("Number of times that fired so far, skipped ones too.", 0)]
    skipped: Annotated[int, about("Number of occurrences skipped beside a running one, or over a quota.", 0)]
    times_missed: Annotated[
        int,
        about(
            "Number of times without an occurrence of their own. If over 1,000 of `cron` or `rrule` passed at once, a"
            " lower bound.",
            0,
        ),
    ]
    time_zones: Annotated[str, about("Version of the time zones by which its times are computed.", "2026f")]
    why: Annotated[str, about("Reason why it fires when it does, or not at all.")]
    next: Annotated[list[UpcomingView], about("Next ten occurrences; one in a list of schedules.")]
    recent: Annotated[list[PassedView], about("Last ten occurrences, newest first; none in a list of schedules.")]


class ScheduleAnswer(TypedDict):
    """One schedule."""

    schedule: Annotated[ScheduleView, about("The schedule.")]


class AddScheduleAnswer(ScheduleAnswer):
    """One schedule, and a flag that says whether this request added it."""

    created: Annotated[bool, about("True if this request added the schedule; false if it was there already.", True)]


class SchedulesAnswer(TypedDict):
    """Schedules of a queue, by id."""

    schedules: Annotated[list[ScheduleView], about("Schedules of this page.")]
    next_after: NotRequired[Annotated[str, about("Id to give as `after` for the next page.", "daily-report")]]


class TimesAnswer(TypedDict):
    """Times of a rule."""

    times: Annotated[list[UpcomingView], about("Times, the earliest first.")]


class PurgedSchedulesAnswer(TypedDict):
    """Number of schedules that are deleted, or would be in a dry run."""

    purged: Annotated[int, about("Number of schedules of this request.", 40)]
    dry_run: Annotated[bool, about("True if the schedules were only counted.", False)]
    next_after: Annotated[
        str | None,
        about("Value of `after` for the next request, if schedules may remain; null after the last one.", None),
    ]


class RunAnswer(TypedDict):
    """Occurrence that was added."""

    id: Annotated[str, about("Id of its task.", "daily-report@2026-11-26T08:12:03.123Z")]


class BackfillAnswer(TypedDict):
    """Occurrences that are being added."""

    occurrences: Annotated[int, about("Number of occurrences in the span.", 7)]


def show_schedule(status: ScheduleStatus) -> ScheduleView:
    """A schedule in the words of the HTTP API."""
    schedule, progress, rule = status.schedule, status.progress, status.schedule.rule
    view = ScheduleView(
        id=schedule.id,
        queue=schedule.queue,
        kind=schedule.kind,
        payload=masked_payload(schedule.kind, load_json(schedule.payload, "payload")),
        repeat=show_repeat(rule.repeat),
        time_zone=rule.time_zone,
        starts_at=format_instant(rule.starts_at),
        gap=rule.gap,
        fold=rule.fold,
        gap_used=rule.gap_used,
        fold_used=rule.fold_used,
        jitter=format_duration(schedule.jitter_ms),
        missed=schedule.missed,
        catch_up=format_duration(schedule.catch_up_ms),
        overlap=schedule.overlap,
        retry=_show_retry(schedule.retry),
        paused=schedule.paused,
        version=progress.version,
        created_at=format_instant(status.created_at),
        fired=progress.fired,
        skipped=progress.skipped,
        times_missed=progress.missed,
        time_zones=progress.zones,
        why=status.why,
        next=[show_upcoming(one) for one in status.upcoming],
        recent=[_show_passed(one) for one in status.recent],
    )
    _add_given(view, schedule)
    return view


def _add_given(view: ScheduleView, schedule: Schedule) -> None:
    """Add the fields that only some schedules have."""
    if schedule.rule.until is not None:
        view["until"] = format_instant(schedule.rule.until)
    if schedule.limit is not None:
        view["limit"] = schedule.limit
    if schedule.deadline_ms is not None:
        view["deadline"] = format_duration(schedule.deadline_ms)
    if schedule.file:
        view["file"] = schedule.file
    if schedule.notify:
        view["notify_done"] = show_notify(schedule.notify)


def show_upcoming(one: Upcoming) -> UpcomingView:
    """An occurrence to come."""
    view = UpcomingView(at=format_instant(one.nominal), local=one.local)
    if one.due_at != one.nominal:
        view["due_at"] = format_instant(one.due_at)
    if one.clock_change:
        view["clock_change"] = True
    return view


def _show_passed(one: Passed) -> PassedView:
    view = PassedView(id=one.id, at=format_instant(one.nominal), state=one.state)
    if one.stands_for > 1:
        view["stands_for"] = one.stands_for
    return view


def _show_retry(retry: RetryPolicy) -> RetryView:
    return {
        "max_attempts": retry.max_attempts,
        "backoff": format_duration(retry.backoff_ms),
        "factor": retry.factor,
        "max_backoff": format_duration(retry.max_backoff_ms),
        "jitter": retry.jitter,
    }


def show_repeat(repeat: Repeat) -> dict[str, Any]:
    """A rule as its request has it."""
    if isinstance(repeat, Every):
        return {"every": format_duration(repeat.every_ms)}
    if isinstance(repeat, Cron):
        return {"cron": repeat.expression}
    exdates = {"exdates": [format_instant(at) for at in repeat.exdates]} if repeat.exdates else {}
    return {"rrule": repeat.rule, **exdates}
