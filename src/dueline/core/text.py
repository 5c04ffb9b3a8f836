"""Safe output of strings from users and stores."""

import json


def printable(text: str) -> str:
    """Return a string whose control and bidirectional characters are escaped."""
    if text.isprintable():
        return text
    return "".join(
        sign if sign.isprintable() or sign in "\n\t" else repr(sign)[1:-1] for sign in text
    )


def storable(text: str) -> str:
    """Return a string that every store can keep, with what one cannot escaped.

    No store keeps lone surrogates, as of file names that are not UTF-8, and PostgreSQL no NUL.
    """
    return str.encode(str.replace(text, "\0", "\\x00"), errors="backslashreplace").decode()


def one_line(text: str) -> str:
    """Return a string on one line, so that it cannot fake a line of output."""
    return printable(" ".join(text.split()))


def indented(text: str) -> str:
    """Return indented lines, so that none can fake a log record."""
    return "\n".join(f"    {printable(line)}" for line in text.splitlines())


def json_text(value: object) -> str:
    """Return a value as JSON with control and bidirectional characters escaped."""
    text = json.dumps(value, ensure_ascii=False)
    if text.isprintable():
        return text
    # Outside strings, JSON only has printable characters: each of these is in a string.
    return "".join(sign if sign.isprintable() else json.dumps(sign)[1:-1] for sign in text)
