"""One tree of errors, each with a sentence."""

import copy
import inspect
import pickle

import pytest

import dueline
from dueline.core import errors
from dueline.core.errors import BadInput, DuelineError, EnqueueUnknown, JobTimeout, NotFound
from dueline.tasks.raised import Cancel, Snooze
from tests.harness.calls import row_of

KINDS = [
    kind
    for _, kind in inspect.getmembers(errors, inspect.isclass)
    if issubclass(kind, DuelineError)
]
PLACES = {
    "BadInput": DuelineError,
    "BlobLost": errors.BadInput,
    "ConfigError": errors.BadInput,
    "LakeUnavailable": errors.ConfigError,
    "NotFound": DuelineError,
    "Conflict": DuelineError,
    "LeaseLost": errors.Conflict,
    "Duplicate": errors.Conflict,
    "QuotaExceeded": errors.Conflict,
    "StoreUnavailable": DuelineError,
    "StoreReplaced": errors.StoreUnavailable,
    "StoreMoved": errors.StoreUnavailable,
    "Unknown": errors.StoreUnavailable,
    "EnqueueUnknown": errors.Unknown,
    "AppendUnknown": errors.Unknown,
    "CommitUnknown": errors.Unknown,
    "StoreCorrupt": DuelineError,
    "LakeCorrupt": errors.StoreCorrupt,
    "HistoryExpired": errors.StoreCorrupt,
    "SchemaMismatch": errors.StoreCorrupt,
    "JobFailed": DuelineError,
    "JobTimeout": DuelineError,
}


def test_the_tree_is_the_one_of_the_style_sheet() -> None:
    assert {kind.__name__: kind.__bases__[0] for kind in KINDS} == {
        **PLACES,
        "DuelineError": Exception,
    }


@pytest.mark.parametrize("kind", KINDS)
def test_the_default_message_is_the_docstrings_first_line(kind: type[DuelineError]) -> None:
    error = kind()
    assert error.message
    assert error.message == str(error) == inspect.getdoc(kind).partition("\n")[0]  # type: ignore[union-attr]
    assert error.hint == ""


@pytest.mark.parametrize("kind", KINDS)
def test_message_and_hint_are_kept_apart_and_told_together(kind: type[DuelineError]) -> None:
    error = kind("The lane is full.", hint="Empty it.")
    assert (error.message, error.hint) == ("The lane is full.", "Empty it.")
    assert str(error) == "The lane is full. Empty it."


@pytest.mark.parametrize("kind", KINDS)
def test_errors_survive_a_pipe_and_a_copy(kind: type[DuelineError]) -> None:
    error = kind("The lane is full.", hint="Empty it.")
    for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error)):  # noqa: S301  (our own)
        assert type(twin) is kind
        assert (twin.message, twin.hint, str(twin)) == (error.message, error.hint, str(error))


def test_jobs_of_unknown_fate_survive_a_pipe() -> None:
    error = EnqueueUnknown("no answer", hint="again")
    error.jobs = [row_of(1), row_of(2)]
    twin = pickle.loads(pickle.dumps(error))  # noqa: S301  (our own)
    assert list(twin.jobs) == list(error.jobs)
    assert EnqueueUnknown().jobs == ()


def test_a_snooze_and_a_cancel_survive_a_pipe() -> None:
    snooze = pickle.loads(pickle.dumps(Snooze(minutes=5)))  # noqa: S301  (our own)
    assert (type(snooze), snooze.after_us, str(snooze)) == (
        Snooze,
        300_000_000,
        "Snoozed for 300 s.",
    )
    cancel = pickle.loads(pickle.dumps(Cancel("not wanted")))  # noqa: S301  (our own)
    assert (type(cancel), cancel.message) == (Cancel, "not wanted")


def test_a_snooze_adds_its_parts_up() -> None:
    snooze = Snooze(1.5, minutes=1, hours=1, days=1)
    assert snooze.after_us == 1_500_000 + 60_000_000 + 3_600_000_000 + 86_400_000_000


def test_errors_are_the_builtin_ones_that_they_resemble() -> None:
    assert issubclass(BadInput, ValueError)
    assert issubclass(NotFound, LookupError)


def test_every_public_error_is_a_public_name() -> None:
    public = {name for name in PLACES if name != "Unknown"}  # EnqueueUnknown is what callers see
    assert public <= set(dueline.__all__)


def test_every_public_name_is_there() -> None:
    assert [name for name in dueline.__all__ if not hasattr(dueline, name)] == []
    assert dueline.__all__ == sorted(dueline.__all__)


def test_a_timeout_may_be_that_of_a_call() -> None:
    assert str(JobTimeout()) == "A handler ran longer than the `timeout` of its call or task."
