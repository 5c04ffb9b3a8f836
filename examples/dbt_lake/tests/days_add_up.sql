-- The model has all attempts of its source.
select 1 as differs
where (select coalesce(sum(attempts), 0) from {{ ref('queue_days') }})
    <> (select coalesce(sum(attempts), 0) from {{ source('lake', 'gold_minute') }})
