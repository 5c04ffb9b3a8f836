"""Marks of cases."""

from collections.abc import Iterable
from typing import Any

import pytest


def long_but(cases: Iterable[Any], *kept: object) -> list[Any]:
    """Return the cases of a parameter, of which `make test` runs those that are kept."""
    return [case if case in kept else pytest.param(case, marks=pytest.mark.long) for case in cases]
