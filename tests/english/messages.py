"""The messages of errors, as the code has them: what is written where one is made, a part that is computed as `X`."""

import ast
import re
from collections.abc import Iterator

MAKES = re.compile(
    r"(?:Error|Input|Settings|Failed|Refused|Missing|Misused|Unavailable|BadParameter|CutOff|TimedOut|refuse_fields|written_as)$"
)
"""Names of what is called to make an error."""


def raised(source: str) -> Iterator[tuple[int, str]]:
    """Each text of at least two words that is handed to an error, with its line."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and MAKES.search(_name(node.func)):
            for given in node.args:
                said = _said(given)
                if re.search(r"\w\s+\w", said):
                    yield given.lineno, said


def _name(called: ast.expr) -> str:
    return called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""


def _said(node: ast.expr) -> str:
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        return "".join(_said(part) if isinstance(part, ast.Constant) else "X" for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return (_said(node.left) or "X") + (_said(node.right) or "X")
    return ""
