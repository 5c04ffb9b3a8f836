"""Spark Connect."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.spark.environment import TIMEOUT_S

ROOT = Path(__file__).parents[3]


@pytest.mark.long
def test_a_client_reads_writes_and_follows_by_spark_connect(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.unit.spark.connected", str(tmp_path)]
    ran = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
