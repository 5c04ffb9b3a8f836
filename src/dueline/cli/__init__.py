"""The command line."""

from dueline.cli.main import main, run

__all__ = ["main", "run"]
