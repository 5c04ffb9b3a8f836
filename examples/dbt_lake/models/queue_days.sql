-- Attempts of each queue and tenant by day.
select
    queue,
    tenant,
    cast(minute as date) as day,
    sum(attempts) as attempts,
    sum(done) as done,
    sum(dead) as dead,
    sum(retried + crashed) as failed,
    sum(wait_us) / 1e6 as waited_s,
    sum(run_us) / 1e6 as ran_s
from {{ source('lake', 'gold_minute') }}
group by all
