"""The application of all five: `DUELINE_STORE` names its store."""

from dueline import Dueline

app = Dueline()
app.queue("default", lease=2.0)  # a worker that is killed is noticed after two seconds
app.include(
    *(
        f"examples.dbos_apps.{name}"
        for name in ("widget_store", "agent_inbox", "refunds", "documents", "research")
    )
)
