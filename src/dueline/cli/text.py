"""Text that is safe on a terminal."""


def printable(text: str) -> str:
    """Replace what a terminal would obey: names and errors may come from anyone."""
    return "".join(
        sign if sign.isprintable() or sign in "\n\t" else repr(sign)[1:-1] for sign in text
    )
