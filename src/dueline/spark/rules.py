"""What an audit of a history looks for."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from dueline.checker import VERDICTS, Verdict

ENDED: Final = ("done", "cancelled", "expired", "lost")
"""What ends a job for good; a dead one may be brought back by hand."""

OUTCOMES: Final = (
    *ENDED, "dead", "retried", "crashed", "snoozed", "given_back",
)  # fmt: skip
SPAN_COLUMNS: Final = ("wait_us", "lateness_us", "run_us")

RULES: Final[Mapping[str, tuple[Verdict, str]]] = {
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
}
"""Each rule's verdict, and its words."""

NEVER: Final[Sequence[Verdict]] = ("order", "crossed", "unexplained")
"""What a history of attempts cannot tell: who else waited in which lane at each poll, where the
marks stood, and what was asked and answered when."""


class Audited(NamedTuple):
    """What an audit found, and what it looked for.

    findings: a table of verdict, job_id, attempt, words. looked_for, not_audited: verdicts; of
    those that were not audited nothing is known, and no finding means nothing.
    """

    findings: Any
    looked_for: Sequence[Verdict]
    not_audited: Sequence[Verdict]


def audited(findings: object, *, has_living: bool, has_expected: bool) -> Audited:
    """Say which verdicts were looked for."""
    left_out = set(NEVER)
    if not has_living:
        left_out.add("lost")
    if not has_expected:
        left_out.add("unexpected")
    looked_for = [name for name in VERDICTS if name not in left_out]
    return Audited(findings, looked_for, [name for name in VERDICTS if name in left_out])
