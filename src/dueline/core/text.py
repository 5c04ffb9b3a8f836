"""Text from users and stores, made safe to show."""

import json


def printable(text: str) -> str:
    """Replace what a terminal would obey, such as escape sequences and bidirectional marks."""
    if text.isprintable():
        return text
    return "".join(
        sign if sign.isprintable() or sign in "\n\t" else repr(sign)[1:-1] for sign in text
    )


def one_line(text: str) -> str:
    """Return a text on one line, so that it cannot pass for a line of its own."""
    return printable(" ".join(text.split()))


def indented(text: str) -> str:
    """Return lines that are indented, so that none can pass for a log record."""
    return "\n".join(f"    {printable(line)}" for line in text.splitlines())


def json_text(value: object) -> str:
    """Return a value as JSON in which all that a terminal would obey is escaped."""
    text = json.dumps(value, ensure_ascii=False)
    if text.isprintable():
        return text
    # Outside of strings JSON holds printable characters alone, so each of these is in a string.
    return "".join(sign if sign.isprintable() else json.dumps(sign)[1:-1] for sign in text)
