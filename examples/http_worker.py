"""Run jobs from another language: everything here is HTTP and JSON (A7).

Why: a worker needs no dueline, only the HTTP API. This one is Python without packages; it can be
written the same way in Ruby, Go or a shell.
"""

import json
import sys
from typing import Any
from urllib.request import Request, urlopen

ADDRESS, TOKEN, QUEUE = sys.argv[1:4]


def call(path: str, body: dict[str, Any]) -> Any:  # noqa: ANN401  (JSON)
    """Send a request; an error raises HTTPError, whose body says what to do."""
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
    request = Request(ADDRESS + path, json.dumps(body).encode(), headers)  # noqa: S310
    with urlopen(request, timeout=60) as answer:  # noqa: S310
        return json.load(answer)


def shout(text: str) -> str:
    """Return a text in capital letters: the task."""
    return text.upper()


def main() -> None:
    """Claim jobs until none is due."""
    want = {"queues": [QUEUE], "tasks": ["shout"], "worker": "shouter", "lease": 60, "wait": 1}
    while jobs := call("/claims", want)["jobs"]:
        for job in jobs:
            path, proof = f"/claims/{job['id']}", {"token": job["token"]}
            try:
                result = shout(*job["args"], **job["kwargs"])
            except Exception as error:  # noqa: BLE001  (whatever it is, the job is retried)
                call(f"{path}/fail", {**proof, "error": type(error).__name__})
            else:
                call(f"{path}/complete", {**proof, "result": result})
            print("ran", job["id"], "attempt", job["attempt"])


if __name__ == "__main__":
    main()
