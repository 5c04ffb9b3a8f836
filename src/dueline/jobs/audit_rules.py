"""Rules of the audit of a history."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, get_args

from dueline.core.clock import SECOND_US

ENDED: Final = ("done", "cancelled", "expired", "lost")
"""Outcomes that end a job for good. A dead job can be retried by hand."""

FINAL: Final = (*ENDED, "dead")
"""Outcomes after which a job does not run again by itself."""

OUTCOMES: Final = (
    *FINAL, "retried", "crashed", "snoozed", "given_back",
)  # fmt: skip
SPAN_COLUMNS: Final = ("wait_us", "lateness_us", "run_us")

EARLY_US_MAX: Final = 1_000
"""Maximum error of a process's estimate of the store's time, in microseconds."""

Word = Literal[
    "lost", "unexpected", "illegitimate", "stale", "finished twice", "early", "order",
    "backwards", "crossed", "repeated", "unexplained",
    "over capacity", "over attempts", "duplicate", "incomplete", "inconsistent", "altered",
]  # fmt: skip

AUDITED: Final[Sequence[Word]] = get_args(Word)
"""The verdicts of the checker of recorded runs (`checker/`), then those of the audit alone.

- over capacity, over attempts: more than was promised.
- duplicate: enqueued twice.
- incomplete: a row is missing.
- inconsistent: the times of one row contradict each other, or records of a durable function do.
- altered: a job has another task, queue, tenant or result than before.
"""

SEEN_US: Final = SECOND_US
"""Time after which every worker has noticed a job that is ready."""

AHEAD_US_MAX: Final = 10 * SECOND_US
"""Time by which a worker's clock may be ahead of the clock that the audit reads."""

Need = Literal["living", "expected", "exact", "now", "results", "attempts", "capacities", "passed"]

NEEDS: Final[Mapping[Need, str]] = {
    "living": "the jobs that have a row, and a history without an end",
    "expected": "the ids of all jobs that were enqueued (expected)",
    "exact": "a queue whose history is all or arguments, in a store with transactions",
    "now": "the store's clock at the time of the audit",
    "results": "the results that are kept (results)",
    "attempts": "the number of attempts that a task allows (attempts)",
    "capacities": "the number of attempts of a task that may run at the same time (capacity)",
    "passed": "the number of less urgent jobs that may be claimed first (order)",
}
"""What a rule needs to be applied, in words."""


class Rule(NamedTuple):
    """A rule of the audit: the verdict and the words of its findings, and what it needs."""

    verdict: Word
    words: str
    needs: tuple[Need, ...] = ()


RULES: Final[Mapping[str, Rule]] = {
    "went on": Rule(
        "repeated",
        "ran or ended after it had stopped in a section that must not repeat",
        ("exact",),
    ),
    "repeated": Rule("repeated", "began a section that must not repeat again", ("exact",)),
    "two ends": Rule("finished twice", "ended for good, and had ended before"),
    "another end": Rule("finished twice", "ended in two ways under one claim"),
    "after its end": Rule("illegitimate", "was claimed again after its end"),
    "after its death": Rule(
        "illegitimate", "was claimed again after its death, and was not retried by hand", ("exact",)
    ),
    "before the lease ended": Rule("illegitimate", "was claimed before the lease of a crash ended"),
    "late verdict": Rule("stale", "was claimed while the previous claim was still running"),
    "early": Rule("early", "was started before it was due"),
    "time went back": Rule("backwards", "was claimed before the claim of a smaller fence"),
    "one fence": Rule("backwards", "was claimed twice with one fence"),
    "gone": Rule("lost", "has not ended and has no row", ("living",)),
    "dead and gone": Rule("lost", "is dead and has no row", ("living",)),
    "no trace": Rule("lost", "was acknowledged but left no trace", ("living",)),
    "nobody asked": Rule("unexpected", "ran but is not among the expected jobs", ("expected",)),
    "not enqueued": Rule("unexpected", "ran but has no enqueue event", ("exact",)),
    "enqueued twice": Rule("duplicate", "was enqueued twice", ("exact",)),
    "position twice": Rule("inconsistent", "recorded a call of a durable function twice"),
    "child twice": Rule("inconsistent", "called one job twice"),
    "undone": Rule("illegitimate", "was compensated, and had not failed", ("exact",)),
    "not undone": Rule("incomplete", "failed, and a step was not compensated", ("exact",)),
    "failed and done": Rule("finished twice", "is done, and had recorded that it failed"),
    "missing": Rule("incomplete", "an attempt before this one left no row", ("exact",)),
    "no start": Rule("inconsistent", "is done but was never started"),
    "ended first": Rule("inconsistent", "ended before it was started"),
    "started first": Rule("inconsistent", "was started before it was claimed"),
    "started before enqueued": Rule("inconsistent", "was started before it was enqueued"),
    "in the future": Rule("inconsistent", "ended later than the store's clock shows", ("now",)),
    "another task": Rule("altered", "has another task than before"),
    "another queue": Rule("altered", "is in another queue than before"),
    "another tenant": Rule("altered", "has another tenant than before"),
    "another result": Rule("altered", "has another result than in the history", ("results",)),
    "over attempts": Rule(
        "over attempts", "was retried after its last allowed attempt", ("attempts",)
    ),
    "crowded": Rule(
        "over capacity",
        "was started while the allowed number of its task was running",
        ("capacities",),
    ),
    "passed by": Rule(
        "order", "was ready while too many less urgent jobs were claimed", ("passed",)
    ),
}
"""The rules, by name."""

NEVER: Final[Mapping[str, str]] = {
    "crossed": "the watermarks of lanes, which a history does not hold",
    "unexplained": "the time at which each call was sent and answered, which a history does not"
    " hold",
}
"""Verdicts of the checker that no history can give, and what they would need."""


class Promises(NamedTuple):
    """Limits that the caller promised and the audit checks.

    Attributes:
        capacities: Maximum number of attempts of a task that run at the same time, by task.
        passed: Maximum number of less urgent jobs of the same shard and tenant that may be claimed
            while a job is ready. None if limits, pauses or aging delay jobs.
        attempts: Maximum number of attempts of a task that may fail before the job is dead, by
            task. See `Retry.attempts`.
    """

    capacities: Mapping[str, int] = {}
    passed: int | None = None
    attempts: Mapping[str, int] = {}


NO_PROMISES: Final = Promises()


class Known(NamedTuple):
    """Facts about a store that its history does not hold.

    Attributes:
        whole: Queues whose history is `all` or `arguments` since their first job. None if unknown.
        is_exact: Whether the store has transactions, so that each event is written together with
            what it describes.
        now_us: The store's clock after the history was read. None if unknown.
    """

    whole: Sequence[str] | None = None
    is_exact: bool = False
    now_us: int | None = None

    @property
    def exact(self) -> Sequence[str]:
        """Return the queues whose events are complete."""
        return self.whole or () if self.is_exact else ()


NOTHING_KNOWN: Final = Known()


class Audited(NamedTuple):
    """The result of an audit.

    Attributes:
        findings: A table of verdict, queue, job_id, enqueued, attempt, words.
        looked_for: The verdicts for which at least one rule was applied.
        not_known: Rules that were not applied, by their words, and what they need.
    """

    findings: Any
    looked_for: Sequence[str]
    not_known: Mapping[str, str]

    @property
    def not_audited(self) -> Sequence[str]:
        """Return the other verdicts, about which nothing is known."""
        return [name for name in AUDITED if name not in self.looked_for]

    def with_rule(self, name: str, findings: Any) -> "Audited":  # noqa: ANN401
        """Return the result after one more rule, with all findings."""
        verdict, words, _ = RULES[name]
        looked_for = [
            literal for literal in AUDITED if literal in self.looked_for or literal == verdict
        ]
        not_known = {rule: needs for rule, needs in self.not_known.items() if rule != words}
        return Audited(findings, looked_for, not_known)


def audited(
    findings: object, *, has_living: bool, has_expected: bool, has_results: bool,
    promises: Promises, known: Known,
) -> Audited:  # fmt: skip
    """Return the result of an audit, with the rules that could not be applied."""
    given: Mapping[Need, bool] = {
        "living": has_living and (known.whole is None or bool(known.whole)),
        "expected": has_expected,
        "exact": bool(known.exact),
        "now": known.now_us is not None,
        "results": has_results,
        "attempts": bool(promises.attempts),
        "capacities": bool(promises.capacities),
        "passed": promises.passed is not None,
    }
    applied: set[Word] = set()
    not_known: dict[str, str] = {}
    for verdict, words, needs in RULES.values():
        missing = [NEEDS[need] for need in needs if not given[need]]
        if missing:
            not_known[words] = ", and ".join(missing)
        else:
            applied.add(verdict)
    not_known |= NEVER
    return Audited(findings, [name for name in AUDITED if name in applied], not_known)
