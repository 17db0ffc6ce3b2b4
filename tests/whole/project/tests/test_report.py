"""Reports, on a clock that is moved."""

from datetime import date

from functions.report.app import Report, report

from duecourse.testing import Duecourse


def test_a_report_is_written_when_it_is_due(duecourse: Duecourse) -> None:
    duecourse.import_handlers("functions.report.app")
    report.add(Report(month=date(2026, 4, 1)), id="april", delay="P30D")
    assert duecourse.advance("29d") == 0
    assert duecourse.advance("1d") == 1
    assert duecourse.client.get("april").result == {"pages": 40}


def test_a_report_that_fails_is_tried_again(duecourse: Duecourse) -> None:
    duecourse.import_handlers("functions.report.app")
    report.add(Report(month=date(2026, 1, 1)), id="january", retry={"max_attempts": 3})
    assert duecourse.advance("1d") == 3
    [dead] = duecourse.tasks(state="dead")
    assert "ZeroDivisionError" in dead.error
