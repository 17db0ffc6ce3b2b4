"""Warnings of what has grown long: a question to whoever reads the change, and no failure."""

from collections.abc import Iterator

from tests.support.source import length, sources

MODULE, TEST_MODULE, FUNCTION = 800, 600, 40
"""Lines beyond which a module, one of tests, or a function is named."""


def long_ones() -> Iterator[str]:
    """Each module and function beyond its size, with its length."""
    for source in sources("layers/core", "functions", "local", "tests"):
        lines = source.text.count("\n")
        if lines > (TEST_MODULE if source.name.startswith("tests/") else MODULE):
            yield f"{source.name}: {lines} lines"
        for function in source.functions:
            if length(function) > FUNCTION:
                yield f"{source.name}:{function.lineno}: {function.name} has {length(function)} lines"


if __name__ == "__main__":
    for one in long_ones():
        print(f"warning: {one}; is it one thought?")
