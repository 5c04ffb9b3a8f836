"""Why a job is not running: the conditions that must change, and the sentences about them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal, TypeAlias

from dueline.core.durations import distance_text, instant_text

ConditionKind = Literal[
    "moved",
    "frozen",
    "dead",
    "worker gone",
    "worker silent",
    "claimed",
    "batch",
    "scheduled",
    "retrying",
    "put back",
    "expires",
    "steps",
    "held",
    "jobs",
    "order",
    "signal",
    "sleep",
    "calls",
    "stopped",
    "paused",
    "no worker",
    "quiet",
    "slots lost",
    "task unknown",
    "needs",
    "resources",
    "limit",
    "suspect",
    "waiting",
]
"""What a condition is about."""

Reason = ConditionKind | Literal[
    "unknown", "done", "cancelled", "expired", "lost", "running", "never", "released"
]  # fmt: skip
"""The kind of the first condition, or how a job stands without any."""

Change = Literal["time", "work", "operator"]
"""How a condition changes: by itself at a known time, by itself when other work goes on, or only
when an operator or a program changes it."""

Facts: TypeAlias = Mapping[str, int | str | bool]

_ERROR_CHARACTERS: Final = 200


@dataclass(frozen=True, slots=True)
class Condition:
    """One thing that must change before a job can start.

    Attributes:
        kind: What it is about.
        subject: The name of the queue, tenant, task, limit, worker, signal or step, or the id of
            the job.
        clause: The state in words, without a capital at the start and a period at the end.
        change: `time`: it changes by itself at `at_us`. `work`: it changes by itself when jobs end
            or workers claim; when is not known. `operator`: someone must change it.
        at_us: When it changes by itself, in microseconds UTC; 0 if that is not known.
        command: A command that changes it; empty without one.
        unknown: What is not known of it; empty if nothing.
        facts: The numbers and names behind the clause.
    """

    kind: ConditionKind
    subject: str
    clause: str
    change: Change
    at_us: int = 0
    command: str = ""
    unknown: str = ""
    facts: Facts = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Until:
    """Whether a job starts by a given time, and what would start it by then.

    Attributes:
        until_us: The time, in microseconds UTC.
        starts: `yes`: by itself. `no`: only if something is changed. `unknown`: that is not known.
        sentence: The answer in words.
        commands: Commands that start it by then, all of them, in this order.
    """

    until_us: int
    starts: Literal["yes", "no", "unknown"]
    sentence: str
    commands: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a job is not running; as a string, the sentence.

    Attributes:
        reason: The kind of the first condition, or the state of a job that waits for nothing.
        sentence: The reason in words: what happens next, then every other condition.
        facts: What it rests on; names that end in `_us` are timestamps in microseconds UTC.
        conditions: Everything that must change before the job can start, the next one first.
        ends_as: The state in which the job ends without being run again, if nothing is changed;
            empty if it will run.
        unknown: What is not known.
        until: Whether it starts by the time that was asked for; None if none was.
    """

    reason: Reason
    sentence: str
    facts: Facts = field(default_factory=dict)
    conditions: Sequence[Condition] = ()
    ends_as: str = ""
    unknown: Sequence[str] = ()
    until: Until | None = None

    def __str__(self) -> str:
        """Return the sentence."""
        return self.sentence

    def with_note(
        self, note: str, facts: Facts | None = None, *, ends_as: str = ""
    ) -> "Explanation":
        """Return the explanation with a further sentence."""
        return replace(
            self,
            sentence=f"{self.sentence} {note}",
            facts={**self.facts, **(facts or {})},
            ends_as=self.ends_as or ends_as,
        )


def explanation_of(
    lead: str, conditions: Sequence[Condition], facts: Facts | None = None
) -> Explanation:
    """Return the explanation of a job that waits for at least one condition.

    Args:
        lead: How the sentence begins, before the clause of the first condition.
        conditions: The conditions, the next one first.
        facts: Facts of the job.
    """
    first, *others = conditions
    clause = first.clause if lead else f"{first.clause[0].upper()}{first.clause[1:]}"
    said = f"{lead}{clause}."
    if len(others) == 1:
        said = f"{said} Also, {others[0].clause}."
    elif others:
        numbered = "; ".join(
            f"({number}) {condition.clause}" for number, condition in enumerate(others, start=1)
        )
        said = f"{said} Also: {numbered}."
    known: dict[str, int | str | bool] = {}
    for given in [facts or {}, *(condition.facts for condition in conditions)]:
        known = {**given, **known}
    unknown = tuple(condition.unknown for condition in conditions if condition.unknown)
    return Explanation(first.kind, said, known, tuple(conditions), "", unknown)


def when(instant_us: int, now_us: int) -> str:
    """Format a timestamp, and its distance from now."""
    return f"{instant_text(instant_us)} ({distance_text(instant_us, now_us)})"


def line(error: str) -> str:
    """Return an error's first line, cut, without a period at its end."""
    first = error.strip().partition("\n")[0].removesuffix(".")
    return first if len(first) <= _ERROR_CHARACTERS else f"{first[:_ERROR_CHARACTERS]}..."


def listed(texts: Iterable[str], most: int = 5) -> str:
    """Return texts as a list, of which a few are shown."""
    every = list(texts)
    more = len(every) - most
    return ", ".join([*every[:most], *([f"and {more} more"] if more > 0 else [])])
