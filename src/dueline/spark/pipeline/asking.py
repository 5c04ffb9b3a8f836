"""Questions that people on call ask about a period; each is one SQL text over its attempts."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from dueline.spark.pipeline.queries import Derived, Queries, View, lines_of, text_of

ASKED: Final = """
    SELECT * FROM silver
    WHERE unix_micros(ended) >= :since_us AND unix_micros(ended) < :until_us"""


class Question(NamedTuple):
    """A question.

    Attributes:
        text: Name of its SQL text, and of its view in Spark.
        worst: Columns whose largest values come first.
    """

    text: str
    worst: tuple[str, ...]


QUESTIONS: Final[Mapping[str, Question]] = {
    "failures": Question("failing", ("failed", "dead")),
    "waiting": Question("waiting", ("mean_s", "started")),
    "costs": Question("costs", ("run_s", "attempts")),
}


def answer_to(
    question: Question, queries: Queries, silver: View, *, since_us: int, until_us: int
) -> list[dict[str, Any]]:
    """Return the answer for the attempts that ended in a period, the worst first."""
    views = {"silver": silver, "asked": Derived(ASKED)}
    values = {"since_us": since_us, "until_us": until_us}
    lines = lines_of(queries.run(text_of(question.text), views, values))
    lines.sort(key=lambda line: tuple(str(value) for value in line.values()))
    lines.sort(key=lambda line: tuple(line[name] for name in question.worst), reverse=True)
    return lines
