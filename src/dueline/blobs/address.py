"""Addresses of places of blobs."""

from pathlib import Path
from urllib.parse import unquote, urlsplit

from dueline.blobs.folder import FolderPlace
from dueline.blobs.remote import RemotePlace
from dueline.core.blobs import BlobPlace
from dueline.core.errors import ConfigError


def open_place(url: object) -> BlobPlace:
    """Return the place of an address, such as `file:///srv/blobs` or `s3://bucket/blobs`.

    Raises:
        ConfigError: It is no address of a folder.
    """
    try:
        parts = urlsplit(url) if isinstance(url, str) else None
    except ValueError:
        parts = None
    if parts is None or not parts.scheme or not (parts.netloc or parts.path.strip("/")):
        raise ConfigError(
            f"`blobs` must be the address of a folder (got {url!r:.80}).",
            hint='Use blobs="file:///srv/blobs", or an address of fsspec such as "s3://...".',
        )
    if parts.scheme != "file":
        return RemotePlace(str(url))
    path = Path(unquote(parts.path))
    if parts.netloc or not path.is_absolute():
        raise ConfigError(
            f"{url!r:.80} is no address of a folder of this machine.",
            hint="Use three slashes: file:///srv/blobs.",
        )
    return FolderPlace(path)
