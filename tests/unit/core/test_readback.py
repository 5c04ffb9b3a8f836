"""What a row, or a record, shows of a write whose answer was lost."""

import pytest

from dueline.core.readback import Fate, fate_of, fate_of_commit
from dueline.core.store import NO_VERSION, Delete, Put, Write
from dueline.store_tests.helpers import token_of

NAMED, WRITTEN, OTHER = map(token_of, (1, 2, 3))


@pytest.mark.parametrize("is_unsure", [False, True])
def test_a_row_tells_by_its_token(*, is_unsure: bool) -> None:
    def fate(present: int) -> Fate:
        return fate_of(token_of(present), named=NAMED, written=WRITTEN, is_unsure=is_unsure)

    assert [fate(1), fate(2), fate(3)] == [Fate.OPEN, Fate.HELD, Fate.REFUSED]


def test_an_extension_is_open_while_the_row_bears_its_token() -> None:
    assert fate_of(NAMED, named=NAMED, written=NAMED, is_unsure=True) is Fate.OPEN
    assert fate_of(None, named=NAMED, written=NAMED, is_unsure=True) is Fate.REFUSED


def test_a_row_that_has_gone_counts_as_taken_by_a_request_that_was_given_up() -> None:
    assert fate_of(None, named=NAMED, written=None, is_unsure=True) is Fate.HELD
    assert fate_of(None, named=NAMED, written=None, is_unsure=False) is Fate.REFUSED
    assert fate_of(None, named=NAMED, written=WRITTEN, is_unsure=True) is Fate.REFUSED


def test_nobody_knows_of_a_stub_that_has_gone() -> None:
    def fate(*, is_unsure: bool) -> Fate:
        return fate_of(None, named=NAMED, written=WRITTEN, is_unsure=is_unsure, is_carry=True)

    assert (fate(is_unsure=True), fate(is_unsure=False)) == (Fate.UNKNOWN, Fate.REFUSED)


PUT = Put("a", WRITTEN, b"", NAMED)


@pytest.mark.parametrize(
    ("write", "stored", "unsure", "sure"),
    [
        (PUT, WRITTEN, Fate.HELD, Fate.REFUSED),
        (PUT, NAMED, Fate.OPEN, Fate.OPEN),
        (PUT, OTHER, Fate.UNKNOWN, Fate.REFUSED),
        (PUT._replace(expect=None), OTHER, Fate.OPEN, Fate.OPEN),
        (Delete("a", NAMED), NO_VERSION, Fate.HELD, Fate.REFUSED),
        (Delete("a", NAMED), NAMED, Fate.OPEN, Fate.OPEN),
    ],
)
def test_records_tell_by_their_versions(
    write: Write, stored: bytes, unsure: Fate, sure: Fate
) -> None:
    versions = {"a": stored} if stored else {}
    assert fate_of_commit([write], versions, versions, is_unsure=True) is unsure
    assert fate_of_commit([write], versions, versions, is_unsure=False) is sure


def test_an_expired_record_shows_that_it_was_written() -> None:
    assert fate_of_commit([PUT], {"a": WRITTEN}, {}, is_unsure=True) is Fate.HELD
    open_again = PUT._replace(expect=NO_VERSION)
    assert fate_of_commit([open_again], {"a": OTHER}, {}, is_unsure=True) is Fate.OPEN
