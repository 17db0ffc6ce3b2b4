"""The kind `report`: typed, and wrong for January."""

from datetime import date

from pydantic import BaseModel

from duecourse import Kind, Task


class Report(BaseModel):
    """A report that somebody wants."""

    month: date


class Summary(BaseModel):
    """The report in short."""

    pages: int


report = Kind("report", payload=Report, result=Summary)


@report.handler
def handler(task: Task[Report]) -> Summary:
    """Write the report."""
    return Summary(pages=120 // (task.payload.month.month - 1))
