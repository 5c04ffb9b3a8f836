"""What a row, or a record, shows of a write whose answer was lost."""

import pytest

from dueline.core.readback import WriteStatus, status_of_commit, status_of_write
from dueline.core.store import NO_VERSION, Delete, Put, Write
from dueline.store_tests.calls import token_of

NAMED, WRITTEN, OTHER = map(token_of, (1, 2, 3))


@pytest.mark.parametrize("is_unsure", [False, True])
def test_a_row_tells_by_its_token(*, is_unsure: bool) -> None:
    def status(present: int) -> WriteStatus:
        return status_of_write(token_of(present), named=NAMED, written=WRITTEN, is_unsure=is_unsure)

    replaced = WriteStatus.UNKNOWN if is_unsure else WriteStatus.REFUSED
    assert [status(1), status(2), status(3)] == [WriteStatus.OPEN, WriteStatus.HELD, replaced]


def test_an_extension_is_open_while_the_row_bears_its_token() -> None:
    assert status_of_write(NAMED, named=NAMED, written=NAMED, is_unsure=True) is WriteStatus.OPEN
    assert status_of_write(None, named=NAMED, written=NAMED, is_unsure=True) is WriteStatus.REFUSED


def test_a_row_that_has_gone_counts_as_taken_by_a_request_that_was_given_up() -> None:
    assert status_of_write(None, named=NAMED, written=None, is_unsure=True) is WriteStatus.HELD
    assert status_of_write(None, named=NAMED, written=None, is_unsure=False) is WriteStatus.REFUSED


def test_a_row_that_another_process_has_replaced_does_not_show_a_move() -> None:
    # Once it was applied, another may claim the job at once, and end it.
    for present in (OTHER, None):
        status = status_of_write(present, named=NAMED, written=WRITTEN, is_unsure=True)
        assert status is WriteStatus.UNKNOWN
        extension = status_of_write(present, named=NAMED, written=NAMED, is_unsure=True)
        assert extension is WriteStatus.REFUSED  # the lease is lost in any case


def test_nobody_knows_of_a_stub_that_has_gone() -> None:
    def status(*, is_unsure: bool) -> WriteStatus:
        return status_of_write(None, named=NAMED, written=WRITTEN, is_unsure=is_unsure)

    assert (status(is_unsure=True), status(is_unsure=False)) == (
        WriteStatus.UNKNOWN,
        WriteStatus.REFUSED,
    )


PUT = Put("a", WRITTEN, b"", NAMED)


@pytest.mark.parametrize(
    ("write", "stored", "unsure", "sure"),
    [
        (PUT, WRITTEN, WriteStatus.HELD, WriteStatus.REFUSED),
        (PUT, NAMED, WriteStatus.OPEN, WriteStatus.OPEN),
        (PUT, OTHER, WriteStatus.UNKNOWN, WriteStatus.REFUSED),
        (PUT._replace(expect=None), OTHER, WriteStatus.OPEN, WriteStatus.OPEN),
        (Delete("a", NAMED), NO_VERSION, WriteStatus.HELD, WriteStatus.REFUSED),
        (Delete("a", NAMED), NAMED, WriteStatus.OPEN, WriteStatus.OPEN),
    ],
)
def test_records_tell_by_their_versions(
    write: Write, stored: bytes, unsure: WriteStatus, sure: WriteStatus
) -> None:
    versions = {"a": stored} if stored else {}
    assert status_of_commit([write], versions, versions, is_unsure=True) is unsure
    assert status_of_commit([write], versions, versions, is_unsure=False) is sure


def test_an_expired_record_shows_that_it_was_written() -> None:
    assert status_of_commit([PUT], {"a": WRITTEN}, {}, is_unsure=True) is WriteStatus.HELD
    open_again = PUT._replace(expect=NO_VERSION)
    assert status_of_commit([open_again], {"a": OTHER}, {}, is_unsure=True) is WriteStatus.OPEN
