"""Functions whose source is changed at one place."""

import inspect
import sys
import textwrap

import pytest


def change_source(patch: pytest.MonkeyPatch, owner: type, name: str, old: str, new: str) -> None:
    """Replace a method by one whose source has another text in one place."""
    source = textwrap.dedent(inspect.getsource(getattr(owner, name)))
    assert source.count(old) == 1, f"{name} holds {old!r} {source.count(old)} times"
    found: dict[str, object] = {}
    exec(source.replace(old, new), vars(sys.modules[owner.__module__]), found)  # noqa: S102
    patch.setattr(owner, name, found[name])
