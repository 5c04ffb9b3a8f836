"""The maintenance tasks of all stores, without those of features above this package."""

from typing import Final

from dueline.core.maintenance import MaintenanceTask
from dueline.durable import removal
from dueline.monitor import (
    audit,
    blob_removal,
    dead_workers,
    empty_queues,
    lane_sweep,
    late_shards,
    retention,
    shard_autoscaling,
)
from dueline.workflows import cleanup

TASKS: Final = (
    MaintenanceTask("departed", dead_workers.EVERY_US, dead_workers.release_dead_worker),
    MaintenanceTask("retire", lane_sweep.EVERY_US, lane_sweep.sweep_lanes),
    MaintenanceTask("spread", shard_autoscaling.EVERY_US, shard_autoscaling.autoscale_shards),
    MaintenanceTask("neglect", late_shards.EVERY_US, late_shards.report_late_shards),
    MaintenanceTask("audit", audit.EVERY_US, audit.audit),
    MaintenanceTask("forget", retention.HISTORY_EVERY_US, retention.expire_history),
    MaintenanceTask("finished", cleanup.EVERY_US, cleanup.expire_workflows),
    MaintenanceTask("functions", removal.EVERY_US, removal.remove_ended_functions),
    MaintenanceTask("purge", retention.DEAD_EVERY_US, retention.expire_dead_jobs),
    MaintenanceTask("blobs", blob_removal.EVERY_US, blob_removal.remove_blobs),
    MaintenanceTask("vanish", empty_queues.EVERY_US, empty_queues.remove_empty_queues),
)
