"""Testing applications: see docs/how-to/testing.md."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dueline.testing.bench import AppOnBench, Drained, on_bench
    from dueline.testing.clock import VirtualClock
    from dueline.testing.functions import FunctionsOnBench

__all__ = ["AppOnBench", "Drained", "FunctionsOnBench", "VirtualClock", "on_bench"]

_PLACES = {"FunctionsOnBench": "functions", "VirtualClock": "clock"}


def __getattr__(name: str) -> Any:  # noqa: ANN401  (any of the names above)
    """Import a name at its first use: pytest loads this package for the plugin in every run."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415  (one use)

    return getattr(import_module(f"dueline.testing.{_PLACES.get(name, 'bench')}"), name)
