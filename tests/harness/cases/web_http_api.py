"""The HTTP API over a store: enqueue once, claim with limits, extend, end, cancel."""

from dueline import Dueline
from dueline.web import api
from tests.harness.http_api import Program


def programs_enqueue_and_run_jobs(url: str) -> None:
    """Use a store through the API only."""
    app = Dueline(url)
    app.semaphore("gpu", capacity=1)
    program = Program(api(app, role="admin"))
    body = {"task": "train", "args": [1], "queue": "models", "limits": ["gpu"]}
    first = program.call("POST", "/jobs", body, status=201, idempotency_key="k-1")
    again = program.call("POST", "/jobs", body, status=201, idempotency_key="k-1")
    assert (again["id"], again["repeated"]) == (first["id"], True)
    program.call("POST", "/jobs", {**body, "args": [2]}, status=422, idempotency_key="k-1")
    second = program.call("POST", "/jobs", {**body, "args": [2]}, status=201)
    claim = {"queues": ["models"], "most": 10, "wait": 10}
    (job,) = program.call("POST", "/claims", claim)["jobs"]  # one permit
    proof = {"token": job["token"]}
    extended = program.call("POST", f"/claims/{job['id']}/extend", proof)
    assert extended["lease_until"] >= job["lease_until"]
    program.call("POST", f"/claims/{job['id']}/complete", {**proof, "result": [1.5, "é"]})
    program.call("POST", f"/claims/{job['id']}/complete", proof, status=409)
    (other,) = program.call("POST", "/claims", claim)["jobs"]
    assert {job["id"], other["id"]} == {first["id"], second["id"]}
    assert program.call("POST", f"/jobs/{other['id']}/cancel", {}) == {"ended": False}
    proof = {"token": other["token"]}
    assert program.call("POST", f"/claims/{other['id']}/extend", proof)["is_cancelled"]
    program.call("POST", f"/claims/{other['id']}/fail", {**proof, "error": "Stopped"})
    assert program.call("GET", f"/jobs/{job['id']}/result?wait=10")["result"] == [1.5, "é"]
    assert program.call("GET", f"/jobs/{other['id']}/result?wait=10")["state"] == "cancelled"
    many = [{"task": "x", "args": [n], "queue": "models"} for n in range(20)]
    made = program.call("POST", "/jobs/bulk", {"jobs": many}, status=201, idempotency_key="k-2")
    same = program.call("POST", "/jobs/bulk", {"jobs": many}, status=201, idempotency_key="k-2")
    assert [one["id"] for one in made] == [one["id"] for one in same]
    listed = program.call("GET", "/jobs?filter=queue:models&limit=100")["jobs"]
    assert len(listed) == 20
    app.close()
