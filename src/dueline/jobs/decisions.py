"""Changes that one write of a record decides.

A feature says once what it changes: the record that decides, and what follows from it. With
transactions all of it is one group. Elsewhere the record is written first, on the version that was
read, and its value holds all that the rest depends on. Any process that reads the record may
write the rest again, and then close the record (rules C1 to C9).
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Final, NamedTuple

from dueline.core.clock import DAY_US
from dueline.core.errors import StoreUnavailable, Unknown
from dueline.core.store import Commit, Group, Put, Store
from dueline.jobs.completion import joined
from dueline.jobs.results import merged

RESEND_US_MAX: Final = DAY_US
"""No insert is repeated later: stores remember deleted keys for a limited time (rule C5)."""

_BYTES_MAX: Final = 2**15
"""Maximum size of the values that one conditional write holds."""


class Decision(NamedTuple):
    """A conditional write of one record, and what follows from it.

    Attributes:
      write: The deciding write: one `Put`. Its value holds all that `carried` depends on.
      carried: The verdicts, jobs and rows that follow; each repeat writes the same.
      closed: The record once all of that is stored; None if it stays as it is.
      unless: Conditions that only a transaction needs, since elsewhere rule B1 holds.
    """

    write: Commit
    carried: Group
    closed: Put | None = None
    unless: Sequence[Commit] = ()

    def put(self) -> Put:
        """Return the deciding write."""
        (put,) = self.write.writes
        assert isinstance(put, Put)
        return put

    def at_once(self) -> "Decision":
        """Return the same decision if nothing is left to be written later."""
        if self.closed is None:
            return self
        write = self.write._replace(writes=(self.closed._replace(expect=self.put().expect),))
        return self._replace(write=write, closed=None)


class Completion(Enum):
    """What `complete` did."""

    HERE = "this call has written all that was left"
    ELSEWHERE = "one transaction wrote all of it, or another process has"
    TOO_LATE = "it is too late to insert; the record is closed"


def decide(store: Store, decisions: Sequence[Decision], *, in_order: bool = False) -> list[bool]:
    """Apply decisions about different records, each with all that it carries or not at all.

    Many are decided together: all of them in a transaction; elsewhere those of one partition. If
    one of these is refused, so are the others, although each by itself may hold. With `in_order`,
    none is applied after one that is refused.

    Returns:
        For each whether this call has applied it.

    Raises:
        Unknown: Some may be applied. Decide again, or read their records and complete them.
    """
    if not decisions:
        return []
    if store.transactional:
        commits = [decision.at_once().write for decision in decisions]
        commits += [commit for decision in decisions for commit in decision.unless]
        carried = joined([decision.carried for decision in decisions])
        return [store.together([carried._replace(commits=merged(commits))])[0]] * len(decisions)
    made: dict[int, Decision] = {}
    try:
        for batch in _batches(decisions, in_order=in_order):
            puts = [decision.put() for decision in batch.values()]
            if store.commit(next(iter(batch.values())).write.partition, puts):
                made |= batch
            elif in_order:
                break
        done = dict(zip(made, _follow(store, list(made.values())), strict=True))
    except StoreUnavailable as error:
        if made and not isinstance(error, Unknown):
            raise Unknown(f"{error.message} Some of it may be stored.") from error
        raise
    return [done.get(place, False) for place in range(len(decisions))]


def complete(store: Store, decision: Decision, *, age_us: int) -> Completion:
    """Write again what the decision of a record carries that is as it was decided; then close it.

    age_us: time since the decision, in microseconds.
    """
    if store.transactional and decision.closed is None:
        return Completion.ELSEWHERE
    if age_us >= RESEND_US_MAX:
        _follow(store, [decision._replace(carried=Group())])
        return Completion.TOO_LATE
    return Completion.HERE if _follow(store, [decision])[0] else Completion.ELSEWHERE


def _batches(decisions: Sequence[Decision], *, in_order: bool) -> Iterable[dict[int, Decision]]:
    """Return the decisions by their places, those together that are made by one write."""
    batches: dict[object, dict[int, Decision]] = {}
    sizes = Counter[str]()
    for place, decision in enumerate(decisions):
        partition = decision.write.partition
        sizes[partition] += len(decision.put().value)
        batch = place if in_order else (partition, sizes[partition] // _BYTES_MAX)
        has_more = any(decision.carried)
        batches.setdefault(batch, {})[place] = decision if has_more else decision.at_once()
    return batches.values()


def _follow(store: Store, made: Sequence[Decision]) -> list[bool]:
    """Write what decisions carry, then close their records; return which of them are done."""
    carried = joined([decision.carried for decision in made])
    if any(carried) and not store.together([carried])[0]:
        return [False] * len(made)
    return [_close(store, decision) for decision in made]


def _close(store: Store, decision: Decision) -> bool:
    """Close a record, if it is still as decided."""
    if decision.closed is None:
        return True
    write = decision.closed._replace(expect=decision.put().version)
    return store.commit(decision.write.partition, [write])
