"""The chores that one elected worker does for a while.

Elected through a lease, fenced by its epoch, without authority (rules M1, M2): every act is one
that any worker could do, on a condition, so that two monitors cost load, not correctness; and
no job waits for any of them. Without a monitor nothing is deleted when its retention ends.
"""

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Final

from dueline.coordination import worker_registry, worker_roster
from dueline.coordination.election import MONITOR, OFFICES
from dueline.coordination.leases import BEATS_A_TTL, Leases, set_free
from dueline.coordination.worker_roster import Member
from dueline.core.chore import Chore, Report
from dueline.core.clock import SECOND_US, Clock
from dueline.core.engine import Engine
from dueline.core.errors import StoreUnavailable, Unknown
from dueline.core.process_identity import Whereabouts, is_gone, own
from dueline.monitor import (
    audit,
    dead_jobs,
    dead_workers,
    empty_queues,
    history_retention,
    lane_sweep,
    late_shards,
    run_log,
    sampling,
    shard_autoscaling,
)
from dueline.monitor.run_log import Diary, Line
from dueline.workflows import cleanup

TTL_US: Final = 20 * SECOND_US
"""How long the office lasts without a beat: so long after its death another takes over."""

STAND_US: Final = 10 * SECOND_US
"""How often those who do not hold it stand for the office, while they are few."""

STAND_OF_EACH_US: Final = 2 * SECOND_US
"""However many workers there are, no more than one in so long stands: all idle workers share what
their reads may cost."""

SIGHT_US: Final = SECOND_US // 2
"""How often a worker looks whether the process of the monitor has ended, where it can tell."""

CHORES: Final = (
    Chore("departed", dead_workers.EVERY_US, dead_workers.free),
    Chore("retire", lane_sweep.EVERY_US, lane_sweep.retire),
    Chore("sample", sampling.EVERY_US, sampling.sample),
    Chore("spread", shard_autoscaling.EVERY_US, shard_autoscaling.spread),
    Chore("neglect", late_shards.EVERY_US, late_shards.neglect),
    Chore("audit", audit.EVERY_US, audit.audit),
    Chore("forget", history_retention.EVERY_US, history_retention.forget_history),
    Chore("finished", cleanup.EVERY_US, cleanup.let_go),
    Chore("purge", dead_jobs.EVERY_US, dead_jobs.purge),
    Chore("vanish", empty_queues.EVERY_US, empty_queues.vanish),
)


class Monitor:
    """One who stands for the office, and does the chores while it holds it; in steps.

    epoch: under which the office is held; None: somebody else's it is, as far as is known.
    """

    def __init__(
        self,
        engine: Engine,
        holder: str,
        *,
        clock: Clock,
        chance: Callable[[], float],
        chores: Sequence[Chore] = CHORES,
        warn: Callable[[str], object] = lambda _: None,
    ) -> None:
        """Take the engine, and who stands; reads nothing yet.

        Args: holder: another one for each process and each try. chance: gives in [0, 1), so
          that not all stand at once. warn: called with each line that a chore wants logged,
          while the office is held.
        """
        self.epoch: int | None = None
        self._engine = engine
        self._chores = chores
        self._chance = chance
        self._warn = warn
        self._diary: Diary | None = None
        self._clock = clock
        self._here = own()
        self._rival: Member | None = None
        self._rests_until_us = 0
        self._leases = Leases(
            engine.store, OFFICES, holder,
            ttl_us=TTL_US, time=engine.time, clock=clock, ids=engine.ids,
        )  # fmt: skip

    def step(self) -> int:
        """Stand for the office if need be, then do a step of the chore that is most overdue.

        Returns: after how many microseconds there is something to do again.
        """
        left_us = self._rests_until_us - self._clock.monotonic_us()
        if left_us > 0 and not self._is_rival_gone():
            return min(left_us, SIGHT_US)
        self._rests_until_us = 0
        beat_us = TTL_US // BEATS_A_TTL
        if self._leases.sure_us(MONITOR) < TTL_US - TTL_US // 10 - beat_us:
            self._stand()
        if self._diary is None:
            rarely_us = STAND_OF_EACH_US * worker_registry.count(self._engine.store)
            rest_us = round(max(STAND_US, rarely_us) * (1 - self._chance() / 4))
            if not self._sees_rival():
                return rest_us
            self._rests_until_us = self._clock.monotonic_us() + rest_us
            return min(rest_us, SIGHT_US)
        lines = self._diary.lines
        now_us = self._engine.time.earliest_us()
        wait_us, chore = min(
            ((_wait_us(one, lines.get(one.name), now_us), one) for one in self._chores),
            key=itemgetter(0),
        )
        if wait_us > 0:
            return min(wait_us, beat_us)
        self._do(chore, self._diary)
        return 0

    def _sees_rival(self) -> bool:
        """Return whether it can be told from here when the process of the monitor ends."""
        grant = self._leases.seen(MONITOR)
        if grant is None or not self._here.space:
            return False
        if self._rival is None or self._rival.worker != grant.holder:
            everybody = (member for member, _ in worker_roster.members(self._engine.store))
            self._rival = next((one for one in everybody if one.worker == grant.holder), None)
        return self._rival is not None and self._rival.space == self._here.space

    def _is_rival_gone(self) -> bool:
        """Return whether the monitor's process has ended for certain; its lease is free then."""
        rival = self._rival
        if rival is None:
            return False
        if not is_gone(Whereabouts(rival.space, rival.pid, rival.born), self._here):
            return False
        version = self._engine.ids.token()
        set_free(self._engine.store, OFFICES, MONITOR, version=version, holder=rival.worker)
        self._rival = None
        return True

    def _stand(self) -> None:
        epoch = self._leases.stand(MONITOR)
        if epoch is None or epoch != self.epoch:
            self._diary = None
        if epoch is not None and self._diary is None:
            version = self._engine.ids.token()
            self._diary = run_log.opened(self._engine.store, epoch=epoch, version=version)
        self.epoch = None if self._diary is None else epoch

    def _do(self, chore: Chore, open_diary: Diary) -> None:
        line = open_diary.lines.get(chore.name, Line(0))
        try:
            report = chore.step(self._engine, line.after)
        except (StoreUnavailable, Unknown):
            raise
        except Exception:
            self._note(open_diary, chore, line, Report())  # others have their turn
            raise
        self._note(open_diary, chore, line, report)

    def _note(self, open_diary: Diary, chore: Chore, line: Line, report: Report) -> None:
        now_us = self._engine.time.earliest_us()
        next_us = now_us + (chore.every_us if report.after is None else report.rest_us)
        written = Line(next_us, report.after, line.acts + report.acts)
        version = self._engine.ids.token()
        if not open_diary.write(chore.name, written, report.puts, version=version):
            self._diary = self.epoch = None  # another holds the office
            return
        for words in report.warnings:
            self._warn(words)

    def resign(self) -> None:
        """Give the office back, so that another need not wait until it lapses."""
        self._diary = self.epoch = None
        self._leases.release([MONITOR])


def _wait_us(chore: Chore, line: Line | None, now_us: int) -> int:
    """Tell how long it is until a chore goes on; no longer than its round, if the clock jumped."""
    return 0 if line is None else min(line.next_us - now_us, chore.every_us)
