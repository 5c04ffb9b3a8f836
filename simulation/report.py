"""Reports about runs."""

import time
from collections.abc import Callable

from checker import VERDICTS
from simulation.crowd import Sum
from simulation.deploying import DEPLOYED_VERDICTS
from simulation.flowing import FLOW_VERDICTS
from simulation.life import Life
from simulation.limited import LIMITED_VERDICTS
from simulation.ordered import ORDERED_VERDICTS
from simulation.recurring import RECURRING_VERDICTS
from simulation.streams.life import STREAM_VERDICTS
from simulation.suspending import SUSPENDED_VERDICTS
from simulation.tripping import TRIPPED_VERDICTS
from simulation.world import BEGIN_US

HOUR_US = 3600 * 1_000_000
PROGRESS_S = 60.0
ACCIDENTS_SHOWN = 30

JUDGED = (
    *VERDICTS, "doubled", "phantom", "wrong", "recorded twice", "beside", "twice", "stalled",
    "broken", "endless", "denied", *STREAM_VERDICTS, *RECURRING_VERDICTS,
    *LIMITED_VERDICTS, *FLOW_VERDICTS, *DEPLOYED_VERDICTS,
    *SUSPENDED_VERDICTS, *ORDERED_VERDICTS, *TRIPPED_VERDICTS,
)  # fmt: skip
"""All verdicts: those of the checker, the judge, and each kind of run."""


def story(life: Life, *, at: str) -> str:
    """Return a report about a run. at: the commit."""
    lines = [f"seed {life.seed} at commit {at}: {', '.join(sorted(life.faults)) or 'no fault'}"]
    lines.append(
        f"  {sum(map(bool, life.tape))} of {len(life.tape)} choices are not 0; {life.steps} steps, "
        f"{life.simulated_us / 1e6:.1f} s"
    )
    for when_us, who, what in life.accidents[:ACCIDENTS_SHOWN]:
        lines.append(f"  {(when_us - BEGIN_US) / 1e6:10.6f} s  {who}: {what}")
    for verdict, stories in sorted(life.faults.items()):
        lines.append(f"  {verdict}: {len(stories)}")
        lines += ["    " + line for line in stories[0].splitlines()]
    return "\n".join(lines)


def summary(total: Sum, took_s: float) -> str:
    """Return a report about many runs."""
    events = ", ".join(f"{count} {name}" for name, count in sorted(total.counts.items()) if count)
    befell = "\n".join(f"  {count:8} {what}" for what, count in total.befell.most_common())
    wrong = dict.fromkeys(JUDGED, 0)
    for names in total.failed.values():
        for name in names:
            wrong[name] = wrong.get(name, 0) + 1
    verdicts = "no faults"
    if total.failed:
        seeds = ", ".join(f"{seed}" for seed in sorted(total.failed))
        verdicts = f"{len(total.failed)} FAILED: {seeds}"
    return (
        f"{events}\n{befell}\n"
        f"{total.lives} runs, {total.steps} steps, {total.calls} store calls, "
        f"{total.simulated_us / HOUR_US:.1f} simulated hours, "
        f"{sum(total.befell.values())} faults; drained at most "
        f"{total.drained_us_max / 1e6:.0f} s after the last; {total.cpu_s:.0f} CPU s, "
        f"{took_s:.0f} s, {total.steps / max(took_s, 0.1):.0f} steps a second\n"
        f"runs with a verdict: {', '.join(f'{count} {name}' for name, count in wrong.items())}\n"
        f"{verdicts}"
    )


class Progress:
    """Reports the progress of many runs once a minute."""

    def __init__(
        self,
        first: int,
        say: Callable[[str], object],
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start. first: index of the first seed."""
        self._first = first
        self._say = say
        self._now_s = now_s
        self._began_s = self._told_s = now_s()

    def tell(self, total: Sum) -> None:
        """Report the progress, at most once a minute."""
        now_s = self._now_s()
        if now_s - self._told_s < PROGRESS_S:
            return
        self._told_s = now_s
        took_s = now_s - self._began_s
        self._say(
            f"{took_s:.0f} s: {total.lives} runs, {total.steps} steps, "
            f"{total.steps / took_s:.0f} a second, {len(total.failed)} failed; "
            f"continue with --from {self._first + total.lives}"
        )

    def took_s(self) -> float:
        """Return the elapsed time."""
        return self._now_s() - self._began_s
