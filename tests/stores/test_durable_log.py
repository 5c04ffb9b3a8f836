"""The log of a durable function, between claims of the same job."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dueline.core.attempt import DurablePlace
from dueline.core.engine import Engine
from dueline.durable.driving import drive
from dueline.durable.log import Head, Log
from dueline.durable.suspension import Suspended
from tests.harness.addresses import IN_MEMORY, LONG_ON_CASSANDRA, world_of
from tests.harness.calls import row_of


@pytest.fixture(params=[*IN_MEMORY, *LONG_ON_CASSANDRA])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    """Make an empty store of each kind."""
    with world_of(request.param, tmp_path) as world:
        yield world.queues.engine


def loaded(engine: Engine, fence: int) -> Log:
    """Read the log under a claim."""
    log = Log(engine, row_of()._replace(fence=fence), DurablePlace())
    log.load()
    return log


def is_refused(write: Callable[[], object]) -> bool:
    """Return whether a write interrupts the activation."""
    try:
        write()
    except Suspended:
        return True
    return False


def test_records_of_a_claim_are_refused_once_a_later_one_has_read_the_log(engine: Engine) -> None:
    # rule D11
    first = loaded(engine, 1)
    drive(first.write("00001", Head("step", "a"), b"1"))
    second = loaded(engine, 2)
    assert list(second.entries) == ["00001"]
    assert is_refused(lambda: drive(first.write("00002", Head("step", "b"))))
    assert is_refused(lambda: drive(first.note("00002!tries", Head("tries", "b", tries=1))))
    drive(second.write("00002", Head("step", "c")))
    assert is_refused(lambda: drive(loaded(engine, 1).write("00003", Head("step", "b"))))
    third = loaded(engine, 3)
    assert [third.entries[key].head.name for key in sorted(third.entries)] == ["a", "c"]


def test_an_empty_log_is_opened_by_one_claim(engine: Engine) -> None:
    # rule D11
    first, second = loaded(engine, 1), loaded(engine, 2)
    assert is_refused(lambda: drive(first.write("00001", Head("step", "a"))))
    drive(second.write("00001", Head("step", "b")))
    assert loaded(engine, 2).entries["00001"].head.name == "b"


def test_a_position_has_one_record(engine: Engine) -> None:
    # rule D1
    log = loaded(engine, 1)
    drive(log.write("00001", Head("step", "a")))
    assert is_refused(lambda: drive(log.write("00001", Head("step", "b"))))
    assert loaded(engine, 2).entries["00001"].head.name == "a"
