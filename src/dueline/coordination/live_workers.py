"""Which workers are alive, as far as can be seen from here."""

from dueline.coordination import worker_roster
from dueline.coordination.worker_registry import Presence, present
from dueline.core.engine import Engine
from dueline.core.process_identity import Whereabouts, is_gone, own


def live_workers(engine: Engine) -> list[Presence]:
    """Return the workers that are alive, by id.

    A worker that was killed reads as present until it has missed three heartbeats. Where its
    process ran on this machine it is left out at once.
    """
    here = own()
    gone = {
        member.worker
        for member, _ in worker_roster.members(engine.store)
        if is_gone(Whereabouts(member.space, member.pid, member.born), here)
    }
    return [one for one in present(engine.store) if one.worker not in gone]
