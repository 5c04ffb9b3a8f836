"""Testing applications: see docs/how-to/testing.md."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dueline.testing.bench import AppOnBench, Drained, on_bench
    from dueline.testing.clock import VirtualClock

__all__ = ["AppOnBench", "Drained", "VirtualClock", "on_bench"]


def __getattr__(name: str) -> Any:  # noqa: ANN401  (any of the names above)
    """Import a name at its first use: pytest loads this package for the plugin in every run."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from dueline.testing import bench, clock  # noqa: PLC0415

    return getattr(clock if name == "VirtualClock" else bench, name)
