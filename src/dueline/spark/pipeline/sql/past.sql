-- The state of each job at a time: that of its last run, if its id was enqueued again.
-- Views: rows (the history).
WITH once AS (
    SELECT *, row_number() OVER (
        PARTITION BY job_id, enqueued, attempt, worker <> '' ORDER BY at, outcome, id, worker
    ) AS number
    FROM rows
),

known AS (
    SELECT
        queue, job_id, priority, tenant, attempt, enqueued, outcome, worker <> '' AS is_claim,
        unix_micros(claimed) AS claimed_us, unix_micros(ended) AS ended_us
    FROM once
    WHERE outcome NOT IN ('recorded', 'noted', 'refused', 'section') AND (worker = '' OR number = 1)
),

-- Rows of one time under one claim come in the order of `place`; the last one counts.
states AS (
    SELECT
        queue, job_id, priority, tenant, attempt, enqueued, ended_us,
        CASE
            WHEN is_claim THEN 1 WHEN outcome = 'enqueued' THEN 0 WHEN outcome = 'changed' THEN 2
            ELSE 3
        END AS place,
        CASE
            WHEN outcome IN (
                'enqueued', 'changed', 'retried', 'snoozed', 'given_back', 'crashed',
                'suspended', 'restarted', 'stopped'
            ) THEN 'waiting'
            ELSE outcome
        END AS state
    FROM known WHERE ended_us <= :instant_us
    UNION ALL
    SELECT queue, job_id, priority, tenant, attempt, enqueued, ended_us, -1, 'running'
    FROM known WHERE is_claim AND claimed_us <= :instant_us AND ended_us > :instant_us
)

SELECT queue, job_id, state, priority, tenant, attempt
FROM (
    SELECT *, row_number() OVER (
        PARTITION BY queue, job_id
        ORDER BY enqueued DESC, attempt DESC, place DESC, ended_us DESC, state DESC
    ) AS number
    FROM states
)
WHERE number = 1
