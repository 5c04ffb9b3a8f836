"""Workflows: those that are forked."""

from typing import Annotated

import msgspec
from msgspec import Meta

from dueline.api.job_handle import parse_id
from dueline.web.http_api.frame import Call, Input, operation


class FirstStep(Input):
    """The first step that runs again."""

    from_step: Annotated[int, Meta(ge=0, le=2**31)]


class ForkedWorkflow(msgspec.Struct):
    """The new workflow."""

    id: str


@operation("POST", "/workflows/{id}/fork", role="operator", status=201, is_keyed=True)
def fork_workflow(call: Call, body: FirstStep) -> ForkedWorkflow:
    """Start a workflow that reuses the results of what came before a step of another one.

    Refused while the other one runs, and if arguments of steps that run again are not kept. Each
    request starts another one, unless it has the Idempotency-Key of an earlier one.
    """
    flow = parse_id(call.path["id"])
    change = call.operations()
    return ForkedWorkflow(call.once(lambda: change.fork_workflow(flow, body.from_step).hex()))


OPERATIONS = (fork_workflow,)
