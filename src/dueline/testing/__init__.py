"""Testing applications: see docs/how-to/testing.md."""

from dueline.testing.bench import AppOnBench, Drained, on_bench
from dueline.testing.clock import VirtualClock

__all__ = ["AppOnBench", "Drained", "VirtualClock", "on_bench"]
