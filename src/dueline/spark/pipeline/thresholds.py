"""Thresholds of the tables for operators, for both engines."""

from collections.abc import Mapping
from typing import Final

MINUTE_US: Final = 60_000_000
WINDOWS_US: Final[Mapping[str, int]] = {
    "5m": 5 * MINUTE_US, "1h": 60 * MINUTE_US, "6h": 360 * MINUTE_US,
}  # fmt: skip
"""Windows of burn rates."""

TARGET_US: Final = 1_000_000
OBJECTIVE: Final = 0.99

SHARDS_MIN: Final = 2
STARTS_MIN: Final = 20
CRASHES_MIN: Final = 3
SLOW_STEP_MIN: Final = 21
"""The step of a median below which a shard is not slow: about a second."""

SLOW_FACTOR: Final = 2
"""Difference in steps that double: four times the latency of the queue's other shards."""
