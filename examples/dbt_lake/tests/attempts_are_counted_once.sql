-- Every attempt has one outcome: no minute may count more or fewer.
select queue, tenant, minute
from {{ source('lake', 'gold_minute') }}
where attempts <> done + cancelled + expired + lost + dead + retried + crashed + snoozed + given_back
