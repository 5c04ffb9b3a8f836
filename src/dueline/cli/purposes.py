"""The commands by purpose, as `dueline --help` shows them."""

from typing import Any, Final

from typer.core import TyperGroup

PURPOSES: Final = {
    "Begin and run": ("init", "worker", "enqueue", "web"),
    "Jobs": (
        "jobs",
        "dead",
        "flows",
        "batches",
        "schedules",
        "streams",
        "topics",
        "events",
    ),
    "What happens": ("stats", "top", "alerts", "health", "doctor"),
    "Steer": ("queues", "limits", "workers", "shards", "monitor"),
    "The store": ("migrate", "move", "backup", "restore", "export"),
    "Measure and analyse": ("bench", "pipeline"),
    "More": ("import", "completion", "version"),
}
"""The names of the commands and groups below each heading."""


class ByPurpose(TyperGroup):
    """The root of all commands, whose help has headings."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401  (of Typer)
        """Write the commands below the headings of their purposes."""
        for heading, names in PURPOSES.items():
            known = [(name, self.get_command(ctx, name)) for name in names]
            rows = [(name, command.get_short_help_str(200)) for name, command in known if command]
            if rows:
                with formatter.section(heading):
                    formatter.write_dl(rows, col_max=12)
