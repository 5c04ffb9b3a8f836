"""The public names of an application, as `help(Dueline)` and editors see them."""

import inspect
import pydoc
from functools import cached_property

import pytest

from dueline import Dueline

NAMES = [name for name in dir(Dueline("memory://")) if not name.startswith("_")]
PROPERTIES = (property, cached_property)


@pytest.mark.parametrize("name", NAMES)
def test_a_public_name_is_a_documented_method_or_property(name: str) -> None:
    member = inspect.getattr_static(Dueline, name, None)
    assert isinstance(member, PROPERTIES) or inspect.isfunction(member)
    first, _, rest = (member.__doc__ or "").partition("\n")
    assert 0 < len(first) < 72
    assert first.endswith(".")
    assert not rest or rest.startswith("\n")
    if inspect.isfunction(member):
        assert "self" in inspect.signature(member).parameters


def test_the_help_shows_every_public_name() -> None:
    shown = pydoc.plain(pydoc.render_doc(Dueline)).replace("\n |  async ", "\n |  ")
    assert [name for name in NAMES if f"\n |  {name}" not in shown] == []
