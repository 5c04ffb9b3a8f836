"""A random life of a store, call by call."""

import random
from collections.abc import Callable, Sequence

from dueline.core.clock import SECOND_US
from dueline.core.job import Job
from dueline.core.store import Commit, Drop, Extend, Group, Lease, Put, Store, Want
from dueline.core.store_capabilities import flush_claims
from dueline.store_tests.calls import LEASE_US, NOW_US, lane_of, move, new_job, row_of, token_of

LANES = [lane_of(priority=priority, tenant=tenant) for priority in (0, 5) for tenant in ("", "a")]
BORN_MAX = 30
CLAIMED_MAX = 40
BODY_BYTES_MAX = 3000
KEYS = 20


class Life:
    """What producers and a worker do to a store; each call is one transaction.

    has_claimed, has_flushed: the last call was a claim, or a flush of claims.
    """

    def __init__(self, store: Store, chance: random.Random) -> None:
        """Take an empty store."""
        self._store = store
        self._chance = chance
        self._numbers = 0
        self._now_us = NOW_US
        self._claimed: list[Job] = []
        self.has_claimed = False
        self.has_flushed = False

    def call(self) -> None:
        """Make one call."""
        ways: Sequence[Callable[[], object]] = (
            *(self._add, self._claim, self._end, self._finish),
            lambda: flush_claims(self._store),
        )
        self._now_us += self._chance.randrange(SECOND_US)
        way = self._chance.choice(ways)
        way()
        self.has_claimed = way == self._claim
        self.has_flushed = way == ways[-1]

    def _number(self) -> int:
        self._numbers += 1
        return self._numbers

    def _births(self, count: int) -> list[Job]:
        return [
            new_job(
                self._number(),
                lane=self._chance.choice(LANES),
                body=self._chance.randbytes(self._chance.randrange(BODY_BYTES_MAX)),
            )
            for _ in range(count)
        ]

    def _add(self) -> None:
        self._store.add(self._births(self._chance.randrange(1, BORN_MAX)))

    def _claim(self) -> None:
        claimed = self._store.claim(
            [Want(lane, CLAIMED_MAX) for lane in self._chance.sample(LANES, len(LANES))],
            limit=self._chance.randrange(1, CLAIMED_MAX),
            lease=Lease(self._now_us, LEASE_US, "worker", token_of(self._number())),
        )
        self._claimed += claimed.jobs

    def _taken(self) -> list[Job]:
        """Give some of the claimed jobs, which are no longer held afterwards."""
        count = self._chance.randrange(1, CLAIMED_MAX)
        self._chance.shuffle(self._claimed)
        taken, self._claimed = self._claimed[:count], self._claimed[count:]
        return taken

    def _end(self) -> None:
        taken = self._taken()
        kind = self._chance.choice(("drop", "extend", "retry"))
        if kind == "drop":
            self._store.settle([Drop(job) for job in taken])
        elif kind == "extend":
            until_us = self._now_us + LEASE_US
            self._store.settle([Extend(job, until_us, started=True) for job in taken])
            self._claimed += taken
        else:
            again_us = self._now_us + 5 * SECOND_US
            self._store.settle([move(job, again_us, token=self._number()) for job in taken])

    def _finish(self) -> None:
        """End jobs with a result, a row of history and a successor each, as one."""
        groups = []
        for job in self._taken():
            number = self._number()
            result = Put(f"{number % KEYS}", number.to_bytes(16), b"result %d" % number)
            groups.append(
                Group(
                    verdicts=[Drop(job)],
                    commits=[Commit("results", [result])],
                    jobs=self._births(1),
                    rows=[row_of(number)],
                )
            )
        self._store.together(groups)
