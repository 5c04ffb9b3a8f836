"""The pytest plugin: fixtures and a marker."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:  # pytest loads this module in every run, also where nothing uses dueline
    from dueline.api.application import Dueline
    from dueline.testing.bench import AppOnBench
    from dueline.testing.clock import VirtualClock
    from dueline.testing.functions import FunctionsOnBench

INI = "dueline_app"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the setting that names the application."""
    parser.addini(INI, "MODULE:ATTR of the Dueline application under test")


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line(
        "markers",
        "dueline(inline=False, replays=True): run the application in memory; inline: run jobs at "
        "enqueue; replays: suspend durable functions at every call",
    )


@pytest.fixture
def dueline_target(request: pytest.FixtureRequest) -> "Dueline":
    """Return the application of the setting `dueline_app`; override it if needed."""
    place = str(request.config.getini(INI))
    if not place:
        pytest.fail(
            f'No application is named: set {INI} = "MODULE:ATTR" in pytest\'s configuration, '
            "or define a fixture dueline_target that returns it.",
            pytrace=False,
        )
    from dueline.api.loading import load_app  # noqa: PLC0415  (see above)

    return load_app(place)


@pytest.fixture
def dueline_clock() -> "VirtualClock":
    """Return the application's clock, which only moves by `advance`."""
    from dueline.testing.clock import VirtualClock  # noqa: PLC0415  (see above)

    return VirtualClock()


@pytest.fixture
def dueline_app(
    request: pytest.FixtureRequest, dueline_target: "Dueline", dueline_clock: "VirtualClock"
) -> "Iterator[AppOnBench]":
    """Switch the application to an empty memory store for this test."""
    from dueline.testing.bench import on_bench  # noqa: PLC0415  (see above)

    mark = request.node.get_closest_marker("dueline")
    options = {} if mark is None else mark.kwargs
    inline, replays = bool(options.get("inline")), bool(options.get("replays", True))
    with on_bench(dueline_target, clock=dueline_clock, inline=inline, replays=replays) as bench:
        yield bench


@pytest.fixture
def dueline_functions(dueline_app: "AppOnBench") -> "FunctionsOnBench":
    """Run the durable functions of the application, and skip time."""
    return dueline_app.functions


@pytest.fixture(autouse=True)
def _dueline_marked(request: pytest.FixtureRequest) -> None:
    """Run the application in memory for tests with the marker but without the fixture."""
    if request.node.get_closest_marker("dueline") is not None:
        request.getfixturevalue("dueline_app")
