"""Start and signal functions of the originals: commands, one a line, and answers in turn.

The commands are `["start", id, name, argument]`, `["send", id, topic, value]` and `["end", id]`.
A process with DBOS's client: the worker is killed, and this one is not.
"""

import json
import sys
import time

from dbos import DBOSClient

from examples.dbos_apps import world


def main() -> None:
    """Serve commands until there are no more."""
    while not (world.FOLDER / "ready").exists():  # written by the worker
        time.sleep(0.1)
    client = DBOSClient(system_database_url=world.URL)
    for line in sys.stdin:
        word, workflow, *terms = json.loads(line)
        answer: object = None
        if word == "start":
            name, argument = terms
            options = {"workflow_name": name, "queue_name": "apps", "workflow_id": workflow,
                       "app_version": "0.1.0"}  # fmt: skip
            client.enqueue(options, argument)
        elif word == "send":
            topic, value = terms
            client.send(workflow, value, topic, idempotency_key=f"{workflow}-{topic}")
        else:
            found = client.list_workflows(workflow_ids=[workflow])
            status = found[0].status if found else "ABSENT"
            output = found[0].output if status == "SUCCESS" else None
            answer = [status, output]
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
