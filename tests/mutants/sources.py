"""Functions whose source is changed at one place."""

import inspect
import sys
import textwrap
from types import ModuleType

import pytest


def change_source(
    patch: pytest.MonkeyPatch, owner: type | ModuleType, name: str, old: str, new: str
) -> None:
    """Replace a method or function by one whose source has another text in one place."""
    source = textwrap.dedent(inspect.getsource(getattr(owner, name)))
    assert source.count(old) == 1, f"{name} holds {old!r} {source.count(old)} times"
    found: dict[str, object] = {}
    exec(source.replace(old, new), vars(_module_of(owner)), found)  # noqa: S102
    patch.setattr(owner, name, found[name])


def _module_of(owner: type | ModuleType) -> ModuleType:
    return owner if isinstance(owner, ModuleType) else sys.modules[owner.__module__]
