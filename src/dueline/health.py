"""What is wrong with a store."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from dueline import cuts, groups, schedules
from dueline.clock import SECOND_US
from dueline.damage import unreadable_in
from dueline.errors import SchemaMismatch, StoreCorrupt
from dueline.features import names_of
from dueline.integrity import ComparesIndexes
from dueline.limited import Waiting
from dueline.queue import Queues
from dueline.recipes.findings import findings
from dueline.recipes.offices import holder_of
from dueline.recipes.registry import Presence
from dueline.search import Like, search
from dueline.shards import LATE_US, shards_of
from dueline.soundness import SKEW_US_MAX, Check, Verdict, judged
from dueline.span import instant_text, span_text
from dueline.stats import count
from dueline.status import ahead_of
from dueline.store import Delete, Put
from dueline.workforce import live_workers

PROBES = "probes"
PROBE_KEPT_US = 60 * SECOND_US

COMPARE_US = 10 * SECOND_US
"""Default time in microseconds for comparing indexes with tables."""

UNREADABLE_MAX = 100
"""Maximum number of damaged records and jobs that are named."""

SCAN_MAX = 10_000
"""Jobs of one queue that are read for the check whether somebody serves them."""


SHOWN_MAX = 20
"""Maximum number of queues that are named for one reason; the others are counted."""

READY_WITHIN_US = 5 * SECOND_US
"""Default time in microseconds for checking the queues of a store."""

ELECTED_WITHIN_US = 60 * SECOND_US
"""A monitor is elected so long after its workers have started, or it was lost."""

OVERDUE_US = 10 * SECOND_US
"""A job of a schedule that is not stored so long after its time is overdue."""


@dataclass(frozen=True, slots=True)
class Report:
    """What a look at the store found. store: what it says of itself."""

    checks: Sequence[Check]
    store: Mapping[str, str]
    workers: Sequence[Presence]

    def is_bad(self) -> bool:
        """Tell whether something has to be put right."""
        return any(check.verdict == "bad" for check in self.checks)


def examine(queues: Queues, *, compare_us: int = COMPARE_US) -> Report:
    """Look at the store, the clocks, the workers, and whether every queue is served.

    Args: compare_us: how long the store's indexes may be compared with its tables.
    """
    features = ", ".join(sorted(names_of(queues.store)))
    store = {**queues.store.describe(), "features": features or "none"}
    workers = live_workers(queues)
    checks = [
        *judged(store),
        *_indexes(queues, compare_us),
        *_unreadable(queues),
        _clock("this machine", queues.time.skew_us()),
        *(_clock(f"worker {one.worker}", one.clock_skew_us) for one in workers),
        *(_strays(one) for one in workers if one.stray_answers),
        _alive(workers),
    ]
    more: Sequence[Callable[[], Iterable[Check]]] = (
        lambda: [elected(queues, workers)],
        lambda: recurring(queues, workers),
        lambda: _found_by_audits(queues),
        lambda: _written_ahead(queues),
        lambda: _shortened(list(_unserved(queues, workers)), "queues"),
        lambda: neglected(queues, queues.catalog.names(), workers),
        lambda: standing(queues, max_age_us=LATE_US, verdict="warning"),
    )
    for look in more:
        try:
            checks += look()
        except SchemaMismatch:
            raise
        except StoreCorrupt as error:  # the other checks go on
            checks.append(Check("store", "bad", error.message, error.hint))
    return Report(checks, store, workers)


def _indexes(queues: Queues, timeout_us: int) -> Iterator[Check]:
    """Compare the store's indexes with its tables: a row that is not in one is never claimed."""
    store = queues.store
    if not isinstance(store, ComparesIndexes):
        return
    began_us = queues.time.latest_us()
    found = store.compare_indexes(timeout_us=timeout_us)
    took = span_text(queues.time.latest_us() - began_us)
    if found is None:
        finding = f"not compared with their tables within {span_text(timeout_us)}"
        yield Check("indexes", "warning", finding, "Run `dueline doctor --time 10m`.")
    elif found:
        advice = "Rebuild them, or restore a backup (docs/sqlite.md, Damage)."
        yield Check("indexes", "bad", "; ".join(found), advice)
    else:
        yield Check("indexes", "good", f"they agree with their tables (took {took})")


def _unreadable(queues: Queues) -> Iterator[Check]:
    advice = "Was it written by another program, or a newer dueline? Correct or delete it."
    for place, why in islice(unreadable_in(queues, most=SCAN_MAX), UNREADABLE_MAX):
        yield Check(place, "bad", why, advice)


def _written_ahead(queues: Queues) -> Iterator[Check]:
    """Find jobs that were written by a clock that was ahead: they wait by that clock."""
    now_us = queues.time.latest_us()
    left = SCAN_MAX
    for name in queues.catalog.names():
        ahead_us = []
        for job in islice(queues.jobs_of(name), left):
            left -= 1
            if by_us := ahead_of(job, now_us):
                ahead_us.append(by_us)
        if ahead_us:
            yield Check(
                f"queue {name}",
                "warning",
                f"a clock that was up to {span_text(max(ahead_us))} ahead wrote {len(ahead_us)} "
                "jobs; they wait by that clock",
                "Set the clock right; `dueline jobs reschedule` brings the jobs forward.",
            )


def is_writable(queues: Queues) -> Check:
    """See whether the store takes a write, and gives it back.

    Raises: StoreUnavailable: it cannot be reached.
    """
    version = queues.ids.token()
    expires_us = queues.time.latest_us() + PROBE_KEPT_US
    key = version.hex()
    queues.store.commit(PROBES, (Put(key, version, b"{}", expires_us=expires_us),))
    found = queues.store.read(PROBES, after=key[:-1], limit=16)  # all keys of that beginning
    queues.store.commit(PROBES, (Delete(key),))
    if any(record.key == key for record in found):
        return Check("store", "good", "it can be written")
    return Check("store", "bad", "what was written is not there", "See `dueline doctor`.")


def is_ready(queues: Queues, *, max_age_us: int, within_us: int = READY_WITHIN_US) -> list[Check]:
    """See whether jobs that are ready are served, where nothing keeps them: no pause, no limit.

    Args:
      within_us: how long queues are checked for; a warning says how many were left.
    """
    names = queues.catalog.names()
    checks, checked = _late_queues(queues, names, max_age_us=max_age_us, within_us=within_us)
    checks = _shortened(checks, "queues")
    if checked < len(names):
        finding = f"{checked} of {len(names)} were checked within {span_text(within_us)}"
        advice = "Repeat the command: each time it begins with other queues."
        checks.append(Check("queues", "warning", finding, advice))
    checks += standing(queues, max_age_us=max_age_us, verdict="bad")
    checks += _overdue(queues, max_age_us, "bad")
    return checks or [Check("queues", "good", "all that is ready is served in time")]


def _late_queues(
    queues: Queues, names: Sequence[str], *, max_age_us: int, within_us: int
) -> tuple[list[Check], int]:
    """Find the queues with jobs that wait for too long; return how many were checked, too."""
    now_us = queues.time.latest_us()
    served = {name for one in live_workers(queues) for name in one.queues}
    waiting = Waiting(queues)
    found: list[Check] = []
    first = int.from_bytes(queues.ids.token()) % max(1, len(names))
    checked = 0
    for name in (*names[first:], *names[:first]):
        if queues.time.latest_us() - now_us > within_us:
            break
        checked += 1
        settings = queues.catalog.settings(name)
        if settings.is_paused:
            continue
        like = Like("ready", name, but=settings.paused_tenants)
        oldest = search(queues, like, limit=1, leave_out=waiting.has).jobs
        if not oldest:
            continue
        age_us = now_us - oldest[0].at_us
        waits = f"the oldest ready job waits for {span_text(age_us)}"
        if name not in served:
            found.append(Check(f"queue {name}", "bad", f"no live worker serves it, and {waits}"))
        elif age_us > max_age_us:
            found.append(Check(f"queue {name}", "bad", waits))
    return sorted(found, key=lambda one: one.name), checked


def _shortened(checks: Sequence[Check], what: str) -> list[Check]:
    """Return the first checks, and one that says how many there are beside them."""
    left = checks[SHOWN_MAX:]
    rest = [Check(what, left[0].verdict, f"and {len(left)} more {what} like these")] if left else []
    return [*checks[:SHOWN_MAX], *rest]


def _clock(whose: str, skew_us: int) -> Check:
    name = f"clock of {whose}"
    away = f"{span_text(skew_us)} {'ahead of' if skew_us > 0 else 'behind'} the store's"
    if abs(skew_us) >= SKEW_US_MAX:
        return Check(name, "bad", away, "Have the machine keep time (NTP).")
    return Check(name, "good", "in step with the store's" if abs(skew_us) < SECOND_US else away)


def _strays(worker: Presence) -> Check:
    return Check(
        f"worker {worker.worker}",
        "warning",
        f"{worker.stray_answers} answers of the server belonged to no request of it",
        "Upgrade every node to Cassandra 5.0.9 or later, and find out why requests wait there.",
    )


def _alive(workers: Sequence[Presence]) -> Check:
    held, slots = sum(one.held for one in workers), sum(one.slots for one in workers)
    finding = f"alive: {len(workers)}, jobs held: {held}, slots: {slots}"
    return Check("workers", "good", finding)


def elected(queues: Queues, workers: Sequence[Presence]) -> Check:
    """Return who is the monitor; a warning where workers run and none is."""
    grant, now_us = holder_of(queues.store), queues.time.earliest_us()
    if grant is not None and grant.until_us > now_us:
        return Check("monitor", "good", f"{grant.holder}, epoch {grant.epoch}")
    finding = "nobody is elected, so nothing is deleted when its retention ends"
    if any(now_us - one.started_us > ELECTED_WITHIN_US for one in workers):
        advice = "Run a worker without --no-monitor, or `dueline monitor`."
        return Check("monitor", "warning", finding, advice)
    return Check("monitor", "good", finding)


def recurring(queues: Queues, workers: Sequence[Presence]) -> Iterator[Check]:
    """Find schedules whose jobs nobody stores: any worker does, so none is there, or it fails."""
    if found := list(_overdue(queues, OVERDUE_US, "warning")):
        yield from found
    elif not workers and (names := [one.name for one in schedules.everything(queues)]):
        yield Check(
            "schedules",
            "warning",
            f"no live worker stores their jobs; schedules: {len(names)}, such as {names[0]}",
            _START_ANY,
        )


def _overdue(queues: Queues, by_us: int, verdict: Verdict) -> Iterator[Check]:
    if found := schedules.overdue(queues, by_us):
        first = min(found, key=lambda one: one.due_us)
        yield Check(
            "schedules",
            verdict,
            f"nobody has stored the job of {first.name} that was due at "
            f"{instant_text(first.due_us)}; schedules that are overdue: {len(found)}",
            _START_ANY,
        )


_START_ANY = "Start a worker, of any queue: dueline worker MODULE:APP"


def _found_by_audits(queues: Queues) -> Iterator[Check]:
    found = findings(queues.store)
    if found:
        last = found[-1]
        yield Check(
            "audit",
            "warning",
            f"jobs were found that nobody looked at, and are looked at again: {len(found)} times, "
            f"the last at {instant_text(last.at_us)}, in the queue {last.queue}, job {last.job}",
            "Was that job's enqueue acknowledged? If so, report it.",
        )


def neglected(queues: Queues, names: Iterable[str], workers: Sequence[Presence]) -> Iterator[Check]:
    """Find shards of some queues that are late though workers serve them."""
    served = {name for one in workers for name in one.queues}
    for name in sorted(served.intersection(names)):
        if queues.catalog.settings(name).is_paused:
            continue
        now_us = queues.time.latest_us()
        for shard in shards_of(queues, name):
            if shard.lag_us(now_us) > LATE_US:
                yield Check(
                    f"queue {name}, shard {shard.number}",
                    "warning",
                    f"its oldest ready job waits for {span_text(shard.lag_us(now_us))}",
                    f"Start more workers, or see `dueline queues show {name}`.",
                )


def standing(queues: Queues, *, max_age_us: int, verdict: Verdict) -> Iterator[Check]:
    """Find groups of streams that make no progress: one that is stuck still beats."""
    store, now_us = queues.store, queues.time.latest_us()
    for stream, settings in cuts.streams(store):
        for group in groups.registered(store, stream):
            members = groups.members(store, stream, group)
            busy = [one for one in members if one.busy_us and now_us - one.busy_us > max_age_us]
            shards = cuts.shards_of(settings)
            waits_us = groups.waits_us(store, stream, group, shards, now_us=now_us) or 0
            name = f"group {stream}/{group}"
            if busy:
                span = span_text(now_us - busy[0].busy_us)
                finding = f"{busy[0].name} has been handling one batch for {span}"
                yield Check(name, verdict, finding, "See what its handler waits for; restart it.")
            elif waits_us > max_age_us:
                finding = f"its oldest event waits for {span_text(waits_us)}"
                finding += "" if members else ", and it has no live member"
                advice = "Start more consumers; or `stream.forget_group` if it is not used."
                yield Check(name, verdict, finding, advice)


def _unserved(queues: Queues, workers: Sequence[Presence]) -> Iterator[Check]:
    for name in queues.catalog.names():
        if queues.catalog.settings(name).is_paused:
            continue
        counts = count(queues, name, workers, most=SCAN_MAX)
        if counts.ready and not counts.workers:
            least = "at least " if counts.is_capped else ""
            yield Check(
                f"queue {name}",
                "warning",
                f"no live worker serves it; jobs that are ready: {least}{counts.ready}",
                f"Start one: dueline worker MODULE:APP -q {name}",
            )
