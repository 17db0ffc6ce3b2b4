"""Figures counted in the text of sources: lines, repeats, declarations, rooms and their imports."""

import ast
import io
import re
import tokenize
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

WINDOW = 6
"""Code lines that make a repeat where they stand twice."""
LAYOUT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}
"""Tokens that make no line a code line."""
WRITTEN = {"duecourse.client.typed_dicts"}
"""Modules that declare nothing: `make reference` writes them from the declarations, and a test compares them."""
Graph = Mapping[str, Collection[str]]
"""Names, and the names that each imports."""
Function = ast.FunctionDef | ast.AsyncFunctionDef


class Line(NamedTuple):
    """A code line: its number, and its text with single spaces and without a comment."""

    number: int
    text: str


class Declaration(NamedTuple):
    """A place that declares a name; `owner` is `module.Class.function`."""

    owner: str
    name: str
    line: int


class Field(NamedTuple):
    """A field: its names in code, and a pattern of the owners where a name has other meanings too."""

    names: tuple[str, ...]
    owner: str = ""

    def is_declared_by(self, one: Declaration) -> bool:
        """Tell whether a declaration is one of this field."""
        return one.name in self.names and bool(re.search(self.owner, one.owner, re.IGNORECASE))


class Import(NamedTuple):
    """An import that runs, of a dotted name; lazy where a function runs it."""

    name: str
    line: int
    is_lazy: bool


class Run(NamedTuple):
    """A run through the core: calls, files, changes of file, and the changes back to a file seen before."""

    calls: int
    files: int
    changes: int
    returns: int


def code_lines(text: str) -> list[Line]:
    """Count physical lines with a token; no blank line, comment, import or string that is a statement (docstrings)."""
    rows, ends = text.splitlines(), dict[int, int]()
    numbers = set[int]()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            ends[token.start[0]] = token.start[1]
        elif token.type not in LAYOUT:
            numbers.update(range(token.start[0], token.end[0] + 1))
    found = (
        Line(number, " ".join(rows[number - 1][: ends.get(number)].split())) for number in numbers - _no_code(text)
    )
    return sorted(line for line in found if line.text)


def _no_code(text: str) -> set[int]:
    """Lines of imports and of strings that are statements."""
    return {
        number
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Import | ast.ImportFrom) or (isinstance(node, ast.Expr) and _string(node.value))
        for number in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }


def _string(node: ast.AST | None) -> str:
    """A literal string, "" for anything else."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def repeats(files: Mapping[str, Sequence[Line]], size: int = WINDOW) -> list[tuple[str, int]]:
    """Count places whose next six code lines stand elsewhere too; a longer passage is one place, each copy is one."""
    windows = defaultdict(list)
    for file, lines in files.items():
        for first in range(len(lines) - size + 1):
            windows[tuple(line.text for line in lines[first : first + size])].append((file, first))
    twice = {place for places in windows.values() for place in places if _has_copy(place, places, size)}
    return [(file, files[file][at].number) for file, at in sorted(twice) if (file, at - 1) not in twice]


def _has_copy(place: tuple[str, int], places: Sequence[tuple[str, int]], size: int) -> bool:
    return any(file != place[0] or abs(at - place[1]) >= size for file, at in places)


def declarations(module: str, text: str) -> list[Declaration]:
    """Count attributes of classes, fields among parameters, and rows of tables.

    A parameter is a field if it is annotated and keyword-only, or has a default or Annotated. A row is outside
    functions: an item of a dict whose value is no constant, or a call with the name before more.
    """
    return [] if module in WRITTEN else list(_declared(ast.parse(text), module, is_inside=False))


def _declared(node: ast.AST, owner: str, *, is_inside: bool) -> Iterator[Declaration]:
    """Whatever a node declares; in a function (`is_inside`), that is its parameters alone."""
    if isinstance(node, ast.ClassDef | Function):
        owner = f"{owner}.{node.name}"
    match node:
        case ast.ClassDef():
            found = _attributes(node)
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            found, is_inside = _parameters(node.args), True
        case ast.Dict() | ast.Call() if not is_inside:
            found = _rows(node)
        case _:
            found = iter(())
    yield from (Declaration(owner, name, line) for name, line in found)
    for child in ast.iter_child_nodes(node):
        yield from _declared(child, owner, is_inside=is_inside)


def _attributes(node: ast.ClassDef) -> Iterator[tuple[str, int]]:
    for one in node.body:
        targets = [one.target] if isinstance(one, ast.AnnAssign) else one.targets if isinstance(one, ast.Assign) else []
        yield from ((target.id, one.lineno) for target in targets if isinstance(target, ast.Name))


def _parameters(given: ast.arguments) -> Iterator[tuple[str, int]]:
    by_place = [*given.posonlyargs, *given.args]
    with_default = by_place[len(by_place) - len(given.defaults) :]
    described = [one for one in by_place if one not in with_default and _is_described(one)]
    every = [*described, *with_default, *given.kwonlyargs]
    return ((one.arg, one.lineno) for one in every if one.annotation)


def _is_described(one: ast.arg) -> bool:
    return one.annotation is not None and ast.unparse(one.annotation).startswith("Annotated[")


def _rows(node: ast.Dict | ast.Call) -> Iterator[tuple[str, int]]:
    if isinstance(node, ast.Call):
        names = node.args[:1] if len(node.args) + len(node.keywords) > 1 else []
    else:
        items = zip(node.keys, node.values, strict=True)
        names = [key for key, value in items if key and not _is_constant(value)]
    return ((_string(name), name.lineno) for name in names if _string(name))


def _is_constant(node: ast.AST) -> bool:
    """True for a constant, or a list of them: that is an example's value, and describes no field."""
    return isinstance(node, ast.Constant) or (isinstance(node, ast.List) and all(map(_is_constant, node.elts)))


def imports(module: str, text: str, *, is_package: bool = False) -> list[Import]:
    """Count each imported name; nothing below `if TYPE_CHECKING`, and lazy within a function."""
    package = module if is_package else module.rpartition(".")[0]
    return list(_imported(ast.parse(text), package.split("."), is_lazy=False))


def _imported(node: ast.AST, package: list[str], *, is_lazy: bool) -> Iterator[Import]:
    children = ast.iter_child_nodes(node)
    match node:
        case ast.Import():
            yield from (Import(name.name, node.lineno, is_lazy) for name in node.names)
        case ast.ImportFrom():
            above = package[: len(package) - node.level + 1] if node.level else []
            whole = [*above, node.module] if node.module else above
            yield from (Import(".".join([*whole, name.name]), node.lineno, is_lazy) for name in node.names)
        case ast.If(test=ast.Name(id="TYPE_CHECKING") | ast.Attribute(attr="TYPE_CHECKING")):
            children = iter(node.orelse)
    for child in children:
        yield from _imported(child, package, is_lazy=is_lazy or isinstance(node, Function))


def circles(graph: Graph) -> list[list[str]]:
    """Count groups of two and more that all reach each other by imports (strongly connected components)."""
    reached = {name: _reached(graph, name) for name in graph}
    groups = {frozenset(other for other in reached[name] if name in reached[other]) for name in graph}
    return sorted(sorted(group) for group in groups if len(group) > 1)


def _reached(graph: Graph, name: str) -> set[str]:
    seen: set[str] = set()
    ahead = [name]
    while ahead:
        new = set(graph[ahead.pop()]) - seen
        seen |= new
        ahead.extend(new)
    return seen


def floors(graph: Graph) -> int:
    """Count the names on the longest way down by imports; a circle is one name."""
    one_of = {name: name for name in graph} | {name: group[0] for group in circles(graph) for name in group}
    below: dict[str, set[str]] = {name: set() for name in one_of.values()}
    for name, others in graph.items():
        below[one_of[name]] |= {one_of[other] for other in others} - {one_of[name]}
    heights: dict[str, int] = {}

    def height(name: str) -> int:
        if name not in heights:
            heights[name] = 1 + max(map(height, below[name]), default=0)
        return heights[name]

    return max(map(height, below), default=0)


def run_of(files: Iterable[str]) -> Run:
    """Count changes from the file of a call to that of the next call; the first file is one, a return is none."""
    calls, changes, returns, before = 0, 0, 0, ""
    seen: set[str] = set()
    for file in files:
        calls += 1
        changes += file != before
        returns += file != before and file in seen
        seen.add(file)
        before = file
    return Run(calls, len(seen), changes, returns)
