"""All laws, by a store's scope."""

import sys
from collections.abc import Iterator

import pytest

# Before the laws are imported, so that a broken one shows what it compared.
_MODULES = (
    "bounds",
    "clocks",
    "coordination",
    "exclusion",
    "fencing",
    "groups",
    "helpers",
    "inserts",
    "isolation",
    "lane_list",
    "model",
    "order",
    "prefetch",
    "processes",
    "records",
    "recovery",
    "streams",
)
_names = [f"dueline.store_tests.{module}" for module in _MODULES]
pytest.register_assert_rewrite(*(name for name in _names if name not in sys.modules))

from dueline.core.store import Store  # noqa: E402
from dueline.store_tests.bounds import BoundLaws  # noqa: E402
from dueline.store_tests.clocks import ClockLaws  # noqa: E402
from dueline.store_tests.coordination import CoordinationLaws  # noqa: E402
from dueline.store_tests.exclusion import ExclusionLaws  # noqa: E402
from dueline.store_tests.factory import KeepingFactory, StoreFactory, UrlFactory  # noqa: E402
from dueline.store_tests.fencing import FencingLaws  # noqa: E402
from dueline.store_tests.groups import GroupLaws, TogetherLaws  # noqa: E402
from dueline.store_tests.inserts import AddingLaws  # noqa: E402
from dueline.store_tests.isolation import IsolationLaws  # noqa: E402
from dueline.store_tests.lane_list import LaneListLaws, LanesWithRowsLaws  # noqa: E402
from dueline.store_tests.model import ModelLaws  # noqa: E402
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
    AddingLaws,
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
    ModelLaws,
    OrderLaws,
    RecordLaws,
    RecoveryLaws,
    StreamLaws,
    WatermarkLaws,
):
    """What a store of the scope "process" without transactions passes; override `factory`."""

    @pytest.fixture
    def factory(self) -> StoreFactory:
        """Make empty stores; each store's test class says how."""
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
    """What a store of the scope "process" passes; override `factory`."""


class SharedLaws(Laws, ProcessLaws):
    """What a store of the scope "machine" or "network" passes; override `factory`."""


class SharedSteppedLaws(SteppedLaws, ProcessLaws):
    """The same, for a store whose `together` is no transaction."""
