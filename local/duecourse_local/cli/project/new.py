"""`new`: write a function of one's own into the project."""

from typing import Annotated

import typer

from ...project.place import here
from .. import console
from . import scaffold


def new(
    name: Annotated[str, typer.Argument(help="Name of the folder under functions/, such as report.")],
    kind: Annotated[
        str | None, typer.Option(help="Kind of task that the function works.", show_default="as the folder is called")
    ] = None,
) -> None:
    """Write functions/NAME, its resource and target in template.yaml, and a saved event; in a project, also a test.

    Examples:

        duecourse new report

        duecourse new send_bill --kind bill
    """
    wanted = scaffold.New(name, kind or name)
    with console.problems_shown():
        root = here().template().parent
        for path in scaffold.write(root, wanted):
            console.out.print(f"wrote {path.relative_to(root)}")
    body = f'{{"kind": "{wanted.kind}", "payload": {{"hello": "world"}}}}'
    console.out.print(
        f"\nNext: write the handler in functions/{name}/app.py, then try it:\n"
        "  duecourse up   (restart it if it is running)\n"
        f"  curl -s localhost:3000/tasks -H 'content-type: application/json' -d '{body}'",
        soft_wrap=True,
        markup=False,
    )
