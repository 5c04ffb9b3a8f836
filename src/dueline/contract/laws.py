"""All laws, by a store's scope."""

import sys
from collections.abc import Iterator

import pytest

# Before the laws are imported, so that a broken one shows what it compared.
_MODULES = (
    "adding",
    "bounds",
    "census",
    "clockless",
    "closing",
    "coordination",
    "exclusion",
    "fencing",
    "foresight",
    "given",
    "isolation",
    "listing",
    "model",
    "order",
    "processes",
    "records",
    "recovery",
    "streams",
    "together",
)
_names = [f"dueline.contract.{module}" for module in _MODULES]
pytest.register_assert_rewrite(*(name for name in _names if name not in sys.modules))

from dueline.contract.adding import AddingLaws  # noqa: E402
from dueline.contract.bounds import BoundLaws  # noqa: E402
from dueline.contract.census import CensusLaws  # noqa: E402
from dueline.contract.clockless import ClocklessLaws  # noqa: E402
from dueline.contract.closing import ClosingLaws  # noqa: E402
from dueline.contract.coordination import CoordinationLaws  # noqa: E402
from dueline.contract.exclusion import ExclusionLaws  # noqa: E402
from dueline.contract.factory import KeepingFactory, StoreFactory, UrlFactory  # noqa: E402
from dueline.contract.fencing import FencingLaws  # noqa: E402
from dueline.contract.foresight import ForesightLaws  # noqa: E402
from dueline.contract.isolation import IsolationLaws  # noqa: E402
from dueline.contract.listing import ListingLaws  # noqa: E402
from dueline.contract.model import ModelLaws  # noqa: E402
from dueline.contract.order import OrderLaws  # noqa: E402
from dueline.contract.processes import ProcessLaws  # noqa: E402
from dueline.contract.records import RecordLaws  # noqa: E402
from dueline.contract.recovery import RecoveryLaws  # noqa: E402
from dueline.contract.streams import StreamLaws  # noqa: E402
from dueline.contract.together import GroupLaws, TogetherLaws  # noqa: E402
from dueline.store import Store  # noqa: E402

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
    CensusLaws,
    ClocklessLaws,
    ClosingLaws,
    CoordinationLaws,
    ExclusionLaws,
    FencingLaws,
    ForesightLaws,
    GroupLaws,
    IsolationLaws,
    ListingLaws,
    ModelLaws,
    OrderLaws,
    RecordLaws,
    RecoveryLaws,
    StreamLaws,
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
