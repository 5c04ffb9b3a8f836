"""What an audit of a history looks for."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

from dueline.checker import VERDICTS, Verdict

ENDED: Final = ("done", "cancelled", "expired", "lost")
"""What ends a job for good; a dead one may be brought back by hand."""

OUTCOMES: Final = (
    *ENDED, "dead", "retried", "crashed", "snoozed", "given_back",
)  # fmt: skip
RUN: Final = ("job_id", "enqueued")
"""The key of one run of a job, from its enqueueing to its end: data may enqueue an id again."""

SPAN_COLUMNS: Final = ("wait_us", "lateness_us", "run_us")

AUDITED: Final = (*VERDICTS, "over capacity")
"""The verdicts of the checker, and that of limited workers in simulated time."""

SEEN_US: Final = 1_000_000
"""So long after a job is ready any worker has seen that it is, at the latest."""

RULES: Final[Mapping[str, tuple[Verdict | Literal["over capacity"], str]]] = {
    "two ends": ("finished twice", "ended for good under an earlier claim, too"),
    "after its end": ("illegitimate", "was claimed again after its end"),
    "before the lease ended": ("illegitimate", "was claimed before the lease of a crash ended"),
    "late verdict": ("stale", "was claimed while the claim before it went on to a verdict"),
    "early": ("early", "was started before it was due"),
    "time went back": ("backwards", "was claimed before the claim of a smaller fence"),
    "one fence": ("backwards", "was claimed twice with one fence"),
    "gone": ("lost", "has not ended, and has no row"),
    "dead and gone": ("lost", "is dead, and is not kept"),
    "no trace": ("lost", "was acknowledged, and left no trace"),
    "nobody asked": ("unexpected", "ran, and nobody enqueued it"),
    "crowded": ("over capacity", "was started while as many of its task ran as may"),
    "passed by": ("order", "was ready while too many less urgent jobs were claimed"),
}
"""Each rule's verdict, and its words."""

NEVER: Final[Sequence[Verdict]] = ("crossed", "unexplained")
"""What a history of attempts cannot tell: where the marks stood, and what was asked and answered
when."""


class Promises(NamedTuple):
    """What else is to be looked for, since somebody knows that it should hold.

    capacities: how many attempts of a task may run at once, by task. passed: how many less urgent
    jobs of its shard and tenant may be claimed while a job is ready; None where limits, pauses or
    aging keep jobs waiting.
    """

    capacities: Mapping[str, int] = {}
    passed: int | None = None


NO_PROMISES: Final = Promises()


class Audited(NamedTuple):
    """What an audit found, and what it looked for.

    findings: a table of verdict, job_id, enqueued, attempt, words. looked_for: verdicts; of the
    others, which were not audited, nothing is known, and no finding means nothing.
    """

    findings: Any
    looked_for: Sequence[str]

    @property
    def not_audited(self) -> Sequence[str]:
        """Name the other verdicts."""
        return [name for name in AUDITED if name not in self.looked_for]

    def without(self, verdict: str) -> "Audited":
        """Say that a verdict was not looked for, of which there is no finding."""
        return self._replace(looked_for=[name for name in self.looked_for if name != verdict])


def audited(
    findings: object, *, has_living: bool, has_expected: bool, promises: Promises
) -> Audited:
    """Say which verdicts were looked for."""
    left_out: set[str] = set(NEVER)
    if not promises.capacities:
        left_out.add("over capacity")
    if promises.passed is None:
        left_out.add("order")
    if not has_living:
        left_out.add("lost")
    if not has_expected:
        left_out.add("unexpected")
    return Audited(findings, [name for name in AUDITED if name not in left_out])
