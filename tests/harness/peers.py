"""The environment with other libraries of the kind, which some tests run beside dueline."""

import os
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
PEERS: Final = ROOT / os.environ.get("PEERS_VENV", ".venv-peers") / "bin" / "python"

needs_peers: Final = pytest.mark.skipif(
    not PEERS.exists(), reason="no environment with peers: make .venv-peers/.lock"
)
