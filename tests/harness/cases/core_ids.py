"""Ids that grow, tokens that do not repeat."""

import os

from dueline.core.ids import Ids
from tests.harness.clocks import NOW_US


def a_fork_never_makes_the_ids_of_its_parent() -> None:
    ids = Ids()
    ids.one(NOW_US)
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:  # pragma: no cover  (the child's measurements end with os._exit)
        os.write(write_end, b"".join(ids.many(100, NOW_US)))
        os._exit(0)
    os.close(write_end)
    ours = ids.many(100, NOW_US)
    with os.fdopen(read_end, "rb") as pipe:
        heard = pipe.read()
    assert os.waitpid(child, 0)[1] == 0
    theirs = [heard[place : place + 16] for place in range(0, len(heard), 16)]
    assert len(theirs) == 100
    # not merely different: each starts anew, so neither counts towards the other
    assert abs(int.from_bytes(theirs[0]) - int.from_bytes(ours[0])) > 2**40
