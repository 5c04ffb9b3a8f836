"""The pytest plugin: fixtures and a marker."""

from collections.abc import Iterator

import pytest

from dueline.api.application import Dueline
from dueline.api.loading import load_app
from dueline.testing.bench import AppOnBench, on_bench
from dueline.testing.clock import VirtualClock

INI = "dueline_app"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let the application be named in pytest's configuration."""
    parser.addini(INI, "MODULE:ATTR of the Dueline application under test")


def pytest_configure(config: pytest.Config) -> None:
    """Tell of the marker."""
    config.addinivalue_line(
        "markers", "dueline(inline=False): run the app on the bench; inline: jobs run at enqueue"
    )


@pytest.fixture
def dueline_target(request: pytest.FixtureRequest) -> Dueline:
    """Find the application under test by the setting `dueline_app`; override it at will."""
    place = str(request.config.getini(INI))
    if not place:
        pytest.fail(
            f'No application is named: set {INI} = "MODULE:ATTR" in pytest\'s configuration, '
            "or write a fixture dueline_target that returns it.",
            pytrace=False,
        )
    return load_app(place)


@pytest.fixture
def dueline_clock() -> VirtualClock:
    """Make the application's clock, which stands still until `advance`."""
    return VirtualClock()


@pytest.fixture
def dueline_app(
    request: pytest.FixtureRequest, dueline_target: Dueline, dueline_clock: VirtualClock
) -> Iterator[AppOnBench]:
    """Switch the application to an empty memory store for this test."""
    mark = request.node.get_closest_marker("dueline")
    inline = bool(mark and mark.kwargs.get("inline"))
    with on_bench(dueline_target, clock=dueline_clock, inline=inline) as bench:
        yield bench


@pytest.fixture(autouse=True)
def _dueline_marked(request: pytest.FixtureRequest) -> None:
    """Put the application on the bench for tests that bear the marker and name no fixture."""
    if request.node.get_closest_marker("dueline") is not None:
        request.getfixturevalue("dueline_app")
