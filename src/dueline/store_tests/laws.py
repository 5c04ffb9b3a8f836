"""All laws, by the scope of a store."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

# Before the laws are imported, so that a failed one shows the compared values.
_names = [f"{__package__}.{path.stem}" for path in Path(__file__).parent.glob("*.py")]
pytest.register_assert_rewrite(*(name for name in _names if name not in sys.modules))

from dueline.core.store import Store  # noqa: E402
from dueline.store_tests.bounds import BoundLaws  # noqa: E402
from dueline.store_tests.clocks import ClockLaws  # noqa: E402
from dueline.store_tests.coordination import CoordinationLaws  # noqa: E402
from dueline.store_tests.exclusion import ExclusionLaws  # noqa: E402
from dueline.store_tests.factory import KeepingFactory, StoreFactory, UrlFactory  # noqa: E402
from dueline.store_tests.fencing import FencingLaws  # noqa: E402
from dueline.store_tests.groups import GroupLaws, TogetherLaws  # noqa: E402
from dueline.store_tests.inserts import InsertLaws  # noqa: E402
from dueline.store_tests.isolation import IsolationLaws  # noqa: E402
from dueline.store_tests.lane_list import LaneListLaws, LanesWithRowsLaws  # noqa: E402
from dueline.store_tests.order import OrderLaws  # noqa: E402
from dueline.store_tests.prefetch import PrefetchLaws  # noqa: E402
from dueline.store_tests.processes import ProcessLaws  # noqa: E402
from dueline.store_tests.records import RecordLaws  # noqa: E402
from dueline.store_tests.recovery import RecoveryLaws  # noqa: E402
from dueline.store_tests.streams import StreamLaws, WatermarkLaws  # noqa: E402

__all__ = [
    "KeepingFactory",
    "Laws",
    "SharedLaws",
    "SharedSteppedLaws",
    "SteppedLaws",
    "StoreFactory",
    "UrlFactory",
]


class SteppedLaws(
    InsertLaws,
    BoundLaws,
    ClockLaws,
    CoordinationLaws,
    ExclusionLaws,
    FencingLaws,
    PrefetchLaws,
    GroupLaws,
    IsolationLaws,
    LaneListLaws,
    LanesWithRowsLaws,
    OrderLaws,
    RecordLaws,
    RecoveryLaws,
    StreamLaws,
    WatermarkLaws,
):
    """Laws of a store of scope "process" without transactions; override `factory`."""

    @pytest.fixture
    def factory(self) -> StoreFactory:
        """Return the factory of empty stores; each store's test class overrides this."""
        raise NotImplementedError("override the fixture `factory` in the store's test class")

    @pytest.fixture
    def store(self, factory: StoreFactory) -> Iterator[Store]:
        """Open one empty store."""
        store = factory.open(factory.fresh())
        yield store
        store.close()

    def test_the_laws_of_the_declared_scope_are_the_ones_that_run(self, store: Store) -> None:
        assert isinstance(self, ProcessLaws) == (store.scope in ("machine", "network"))
        assert isinstance(self, TogetherLaws) == store.transactional


class Laws(SteppedLaws, TogetherLaws):
    """Laws of a store of scope "process"; override `factory`."""


class SharedLaws(Laws, ProcessLaws):
    """Laws of a store of scope "machine" or "network"; override `factory`."""


class SharedSteppedLaws(SteppedLaws, ProcessLaws):
    """Laws of such a store whose `together` is not a transaction."""
