-- A line for each queue: whether starts are on time, and its worst cause of failures.
with causes as (
    select queue, task, fingerprint, dead, crashed
    from {{ source('lake', 'poison') }}
    qualify row_number() over (
        partition by queue order by dead desc, crashed desc, task, fingerprint
    ) = 1
)

select
    slo.queue,
    slo.started,
    slo.share as share_on_time,
    slo.burn_1h,
    causes.task as worst_task,
    causes.fingerprint as worst_error,
    coalesce(causes.dead, 0) as worst_dead
from {{ source('lake', 'slo') }} as slo
left join causes using (queue)
