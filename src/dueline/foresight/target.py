"""Targets of start latencies, such as p99<2s."""

import re
from typing import Final, NamedTuple

from dueline.core.durations import parse_span, span_text
from dueline.core.errors import BadInput

_TARGET: Final = re.compile(r"p(\d{1,2}(?:\.\d{1,3})?)\s*<\s*(\S+)")


class Target(NamedTuple):
    """A share of starts, and the latency that they have at most."""

    share: float
    most_us: int

    def __str__(self) -> str:
        """Return it as it is written."""
        return f"p{100 * self.share:g}<{span_text(self.most_us)}"


def target_of(text: str) -> Target:
    """Read a target such as p99<2s.

    Raises: BadInput: it has another form.
    """
    match = _TARGET.fullmatch(text.strip())
    most_us = parse_span(match[2]) if match else 0
    if match is None or most_us <= 0 or float(match[1]) <= 0:
        raise BadInput(f"{text!r:.80} is not a target.", hint='Use "p99<2s" or "p95<500ms".')
    return Target(round(float(match[1]) / 100, 5), most_us)
