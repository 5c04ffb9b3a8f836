"""Blobs in a file system of fsspec, and frames that are blobs (C14)."""

import pytest

pytest.importorskip("fsspec")
pytest.importorskip("pandas")

import fsspec
import numpy as np
import pandas as pd

from dueline import BlobLost, Dueline, JobFailed, StoreUnavailable
from dueline.blobs.address import open_place
from dueline.core.blobs import owners_in

NAME = f"{'a' * 16}/0000001/{'b' * 32}-result-{'c' * 16}"


def test_a_place_of_fsspec_keeps_lists_and_removes_blobs() -> None:
    place = open_place("memory://place/blobs/")
    assert place.address(NAME) == f"memory://place/blobs/{NAME}"
    assert list(place.names("a" * 16)) == []
    with pytest.raises(FileNotFoundError):
        place.read(NAME)
    for _ in range(2):
        place.write(NAME, b"x")
    assert place.read(NAME) == b"x"
    assert place.names("a" * 16) == ["0000001"]
    (last,) = place.names(f"{'a' * 16}/0000001")
    assert owners_in(last) == [bytes.fromhex("b" * 32)]
    for _ in range(2):
        place.remove(NAME)
        place.remove(f"{'a' * 16}/0000001")
    assert list(place.names("a" * 16)) == []


def test_large_frames_are_arguments_and_results() -> None:
    app = Dueline("memory://", blobs="memory://frames")

    @app.task(name="double")
    def double(frame: pd.DataFrame) -> pd.DataFrame:
        return frame * 2

    frame = pd.DataFrame({"a": np.arange(100_000), "b": np.zeros(100_000)})
    job = double.enqueue(frame)
    app.run_worker(burst=True)
    pd.testing.assert_frame_equal(job.result(timeout=0), frame * 2)
    files = fsspec.filesystem("memory")
    for path in files.find("/frames"):
        files.rm_file(path)
    lost = double.enqueue(frame)
    for path in files.find("/frames"):
        files.rm_file(path)
    app.run_worker(burst=True)
    with pytest.raises(JobFailed, match=rf"memory://frames/.*{lost.id}.*is gone"):
        lost.result(timeout=0)
    with pytest.raises(BlobLost):
        job.result(timeout=0)


def test_a_file_system_that_fails_refuses_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    app = Dueline("memory://", blobs="memory://broken")

    @app.task(name="size")
    def size(text: str) -> int:
        return len(text)

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("no credentials")

    monkeypatch.setattr(type(fsspec.filesystem("memory")), "pipe_file", fail)
    with pytest.raises(StoreUnavailable, match="RuntimeError: no credentials"):
        size.enqueue("x" * 100_000)
