"""Fuzz the HTTP API and the dashboard: `make fuzz REQUESTS=50000`.

Serves a store with jobs in every state, and sends it requests that schemathesis generates from the
OpenAPI document, in an environment of its own. Nothing may answer with a 5xx, or succeed without a
token or with a token of another role.
"""

import argparse
import json
import logging
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from dueline.web import dashboard
from dueline.web.security import ROLES, Role
from tests.harness.web import Shop, serving

CLIENT = Path(__file__).with_name("fuzz_requests.py")
PAGES = (
    "/queues/*", "/jobs/*", "/workflows/*", "/schedules/*", "/limits/*", "/static/*", "/*",
    "/jobs/*/retry", "/jobs/*/cancel", "/jobs/*/reschedule", "/queues/*/pause",
    "/queues/mail/settings", "/schedules/*/trigger", "/limits/*/capacity", "/workflows/*/cancel",
    "/login", "/logout", "/jobs/change", "/series.json", "/metrics",
)  # fmt: skip


def main() -> int:
    """Serve, and run the client."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--client", required=True, help="Python with schemathesis")
    parser.add_argument("--requests", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    logging.getLogger("dueline").setLevel(logging.ERROR)
    tokens: dict[str, Role] = {f"a-token-of-role-{role}": role for role in ROLES}
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        shop = Shop(f"sqlite:///{folder}/shop.db?synchronous=NORMAL")
        plan = {
            "roles": {role: sorted(operations) for role, operations in ROLES.items()},
            "tokens": {role: token for token, role in tokens.items()},
            "pages": [*PAGES, *shop.paths()],
            "requests": options.requests,
            "seed": options.seed,
        }
        with serving(dashboard(shop.app, tokens=tokens)) as address:
            done = subprocess.run(
                [options.client, CLIENT],
                input=json.dumps(plan | {"address": address}),
                text=True,
                check=False,
            )
        shop.app.close()
    print(f"fuzzed in {time.monotonic() - began_s:.0f} s", flush=True)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
