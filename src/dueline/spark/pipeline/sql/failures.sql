-- Attempts that ended dead, and crashes of jobs that crashed more than once, by error.
-- Views: silver.
WITH bad AS (
    SELECT
        *,
        substring(
            regexp_replace(split_part(error, '\n', 1), '[0-9a-fA-F]{8,}|[0-9]+', '#'), 1, 120
        ) AS fingerprint,
        count_if(outcome = 'crashed') OVER (PARTITION BY queue, job_id, enqueued) AS crashes
    FROM silver
    WHERE outcome IN ('dead', 'crashed')
)

SELECT
    queue, task, fingerprint, date_trunc('minute', ended) AS last,
    count(DISTINCT job_id) AS jobs, count_if(outcome = 'dead') AS dead,
    count_if(outcome = 'crashed') AS crashed
FROM bad
WHERE outcome = 'dead' OR crashes > 1
GROUP BY queue, task, fingerprint, date_trunc('minute', ended)
