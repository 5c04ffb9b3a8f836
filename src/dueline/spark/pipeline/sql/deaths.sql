-- The last death of each job that matches.
-- Views: silver.
WITH dead AS (
    SELECT
        *,
        row_number() OVER (PARTITION BY job_id ORDER BY enqueued DESC, attempt DESC) AS number
    FROM silver
    WHERE outcome = 'dead'
)

SELECT
    job_id, attempt, started IS NOT NULL AS has_started, queue, task,
    coalesce(fingerprint, '') AS error
FROM dead
WHERE number = 1
    AND unix_micros(ended) >= :since_us AND unix_micros(ended) < :until_us
    AND (:all_queues OR array_contains(:queues, queue))
    AND (:task = '' OR task = :task)
    AND (:error = '' OR contains(error, :error) OR fingerprint = :error)
