"""Blobs where fsspec reaches: S3, Google Cloud Storage, Azure, SFTP and others.

Needs `pip install 'dueline[blobs]'`, and the package of the place, such as s3fs.
"""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, TypeVar

from dueline.core.extras import extra
from dueline.core.user_code import describe

T = TypeVar("T")


class RemotePlace:
    """Blobs as objects below an address of fsspec; it connects at the first use.

    Args:
        url: The address, such as `s3://bucket/blobs`.
    """

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")

    @cached_property
    def _opened(self) -> tuple[Any, str]:
        with extra("blobs"):
            from fsspec.core import url_to_fs  # noqa: PLC0415  (slow to load)

        files, root = url_to_fs(self._url)
        return files, root.rstrip("/")

    def _do(self, call: Callable[[Any, str], T], name: str) -> T:
        """Call the file system; its package may raise errors of its own kinds."""
        files, root = self._opened
        try:
            return call(files, f"{root}/{name}")
        except OSError:
            raise
        except Exception as error:
            raise OSError(": ".join(describe(error)[:2])) from error

    def address(self, name: str) -> str:
        """Return the address of a blob, for people."""
        return f"{self._url}/{name}"

    def write(self, name: str, data: bytes) -> None:
        """Write an object; places like S3 show it as a whole or not at all."""

        def write(files: Any, path: str) -> None:  # noqa: ANN401
            files.makedirs(path.rpartition("/")[0], exist_ok=True)
            files.pipe_file(path, data)

        self._do(write, name)

    def read(self, name: str) -> bytes:
        """Read an object."""
        data: bytes = self._do(lambda files, path: files.cat_file(path), name)
        return data

    def remove(self, name: str) -> None:
        """Remove an object; folders of object stores vanish with their last one."""

        def remove(files: Any, path: str) -> None:  # noqa: ANN401
            if files.isfile(path):
                files.rm_file(path)
            elif files.isdir(path) and not files.ls(path):
                files.rmdir(path)

        self._do(remove, name)

    def names(self, folder: str) -> Sequence[str]:
        """Return the names in a folder."""

        def names(files: Any, path: str) -> Sequence[str]:  # noqa: ANN401
            files.invalidate_cache()
            try:
                paths = files.ls(path, detail=False)
            except FileNotFoundError:
                return ()
            return sorted(each.rstrip("/").rpartition("/")[2] for each in paths)

        return self._do(names, folder)
