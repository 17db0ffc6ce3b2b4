"""`python -m tests.english`: each text that users read, against the rules; a breach is printed with its place."""

import sys

from tests.english.texts import Text, texts


def found(text: Text) -> list[str]:
    """A line for each rule that the text breaks."""
    return [f"{text.place}: {rule.name}: {part}" for rule in text.rules for part in rule.breaches(text.plain)]


def main() -> int:
    """1 where a rule is broken."""
    lines = list(dict.fromkeys(line for text in texts() for line in found(text)))
    for line in lines:
        print(line)
    print(f"english: {len(lines)} of {sum(1 for _ in texts())} texts break a rule" if lines else "english: plain")
    return int(bool(lines))


if __name__ == "__main__":
    sys.exit(main())
