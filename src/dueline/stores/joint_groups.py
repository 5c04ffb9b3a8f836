"""Groups of calls that are applied together, in the tables of a database."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from itertools import chain
from typing import Generic, NamedTuple, Protocol, TypeVar

from dueline.core.job import Job
from dueline.core.store import Commit, Group, Row, Verdict

_Database = TypeVar("_Database")
_Database_co = TypeVar("_Database_co", covariant=True)
_Result = TypeVar("_Result")


class _Refused(Exception):
    """A condition of a group failed."""


class Writer(Protocol[_Database_co]):
    """Runs a call in a transaction of its own, or in the open one."""

    def write(self, work: Callable[[_Database_co], _Result]) -> _Result: ...  # noqa: D102


class Tables(NamedTuple, Generic[_Database]):
    """The calls of a group. savepoint: Rolls its block back if that raises."""

    settle: Callable[[_Database, Sequence[Verdict]], Sequence[bool]]
    commit: Callable[[_Database, Sequence[Commit]], bool]
    add: Callable[[_Database, Sequence[Job]], None]
    append: Callable[[_Database, Sequence[Row]], object]
    savepoint: Callable[[_Database], AbstractContextManager[object]]

    def together(self, writer: Writer[_Database], groups: Sequence[Group]) -> Sequence[bool]:
        """Apply groups, each all or nothing, in one transaction.

        Tries all groups at once, then group by group if a condition fails. Also group by group, if
        one group adds a job that another one settles. Both are rare.
        """
        if _may_mix(groups):
            with suppress(_Refused):  # rolls back the transaction: a savepoint would cost more
                writer.write(lambda database: self._apply(database, groups))
                return [True] * len(groups)
            if len(groups) == 1:
                return [False]
        return writer.write(lambda database: [self._attempt(database, group) for group in groups])

    def _attempt(self, database: _Database, group: Group) -> bool:
        """Apply a group; roll it back if a condition fails."""
        try:
            with self.savepoint(database):
                self._apply(database, [group])
        except _Refused:
            return False
        return True

    def _apply(self, database: _Database, groups: Sequence[Group]) -> None:
        """Apply groups as one.

        Raises:
          _Refused: A condition failed; earlier writes are not rolled back.
        """
        verdicts = list(chain.from_iterable(group.verdicts for group in groups))
        if verdicts and not all(self.settle(database, verdicts)):
            raise _Refused
        commits = [commit for group in groups for commit in group.commits]
        if commits and not self.commit(database, commits):
            raise _Refused
        jobs = [job for group in groups for job in group.jobs]
        if jobs:
            self.add(database, jobs)
        rows = list(chain.from_iterable(group.rows for group in groups))
        if rows:
            self.append(database, rows)


def _may_mix(groups: Sequence[Group]) -> bool:
    """Return whether all outcomes can be applied before all inserts."""
    if len(groups) == 1:
        return True
    added = {job.id for group in groups for job in group.jobs}
    return not any(verdict.job.id in added for group in groups for verdict in group.verdicts)
