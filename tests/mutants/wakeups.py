"""How idle workers are woken, broken."""

import pytest

from dueline.stores.sqlite.wakeup import SocketListener
from tests.mutants.sources import change_source


def a_dropped_datagram_is_not_suspected(patch: pytest.MonkeyPatch) -> None:
    change_source(patch, SocketListener, "_receive", "if count > DATAGRAMS_SURE:", "if False:")


def one_thread_is_woken_of_several(patch: pytest.MonkeyPatch) -> None:
    change_source(patch, SocketListener, "wait", "            self._wakeup.set()\n", "")
