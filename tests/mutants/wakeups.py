"""How idle workers are woken, broken."""

import pytest

from dueline.stores.sqlite.wakeup import SocketListener
from tests.mutants.sources import change_source


def news_that_are_taken_at_once_are_the_last(patch: pytest.MonkeyPatch) -> None:
    change_source(
        patch,
        SocketListener,
        "_loop",
        """            self._goes_on.clear()
            self._heard = True
            self._wakeup.set()
""",
        """            self._heard = True
            self._wakeup.set()
            self._goes_on.clear()
""",
    )
