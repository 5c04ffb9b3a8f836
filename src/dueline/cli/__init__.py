"""The command line."""

from dueline.cli.root import main, run

__all__ = ["main", "run"]
