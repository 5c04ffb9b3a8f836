"""Samples by round; medians and ratios of them."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import median

from benchmarks.commands import Sample

LESS_IS_BETTER = (
    "_ms",
    "_mb",
    "_us",
    "early",
    "_percent",
    "behind",
    "reads_per_s",
    "_ratio",
    "statements",
)
"""How the names of measures end of which less is better; of the others more is."""


def is_less_better(measure: str) -> bool:
    """Return whether less is better."""
    return measure.endswith(LESS_IS_BETTER)


@dataclass(frozen=True, slots=True)
class Spread:
    """A median over rounds, the least and the most."""

    median: float
    min: float
    max: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        """Return the spread of some values, with four digits."""
        return cls(*(float(f"{one:.4g}") for one in (median(values), min(values), max(values))))


@dataclass(slots=True)
class Samples:
    """What was measured of a row: a sample a round, by side."""

    samples: dict[str, list[Sample]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    def add(self, side: str, sample: Sample) -> None:
        """Add what was measured of a side in a round."""
        self.samples.setdefault(side, []).append(sample)

    def spread(self, side: str, measure: str) -> Spread | None:
        """Return a measure of a side; None where it was not taken."""
        values = [one[measure] for one in self.samples.get(side, ()) if measure in one]
        return Spread.of(values) if values else None

    def ratio(self, side: str, to: str, measure: str) -> Spread | None:
        """Compare round by round: neighbours in time suffer alike from whatever else runs."""
        pairs = zip(self.samples.get(side, ()), self.samples.get(to, ()), strict=False)
        each = [
            one[measure] / other[measure]
            for one, other in pairs
            if measure in one and other.get(measure)
        ]
        return Spread.of(each) if each else None

    def report(self) -> Mapping[str, object]:
        """Return medians by side, and the ratios of the first side to the others."""
        sides = list(self.samples)
        measures = {side: list(dict.fromkeys(n for one in self.samples[side] for n in one))
                    for side in sides}  # fmt: skip
        return {
            "sides": {
                side: {name: _plain(self.spread(side, name)) for name in measures[side]}
                for side in sides
            },
            "ratios": {
                to: {name: _plain(self.ratio(sides[0], to, name)) for name in measures[to]
                     if self.ratio(sides[0], to, name)}
                for to in sides[1:]
            },
            **({"failures": self.failures} if self.failures else {}),
        }  # fmt: skip


def _plain(spread: Spread | None) -> Mapping[str, float]:
    return asdict(spread) if spread else {}
