"""Other versions of Python."""

import sys

from tools.pythons import find


def test_an_installed_version_is_found_and_another_is_not() -> None:
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert find(version) is not None
    assert find("3.999") is None
