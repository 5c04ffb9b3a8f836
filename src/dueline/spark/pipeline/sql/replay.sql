-- The last end of each chosen job, with the arguments in the enqueue event of that run: null if
-- they were not kept.
-- Views: rows (the history, with all its rows).
WITH last_ends AS (
    SELECT *, row_number() OVER (PARTITION BY job_id ORDER BY at DESC, id DESC) AS number
    FROM rows
    WHERE outcome IN ('done', 'cancelled', 'expired', 'lost', 'dead')
),

kept_calls AS (
    SELECT *, row_number() OVER (PARTITION BY job_id, enqueued ORDER BY at DESC, id DESC) AS number
    FROM rows
    WHERE outcome = 'enqueued' AND codec IS NOT NULL
)

SELECT
    e.job_id, e.enqueued, e.queue, e.task, e.tenant, e.priority, e.outcome, e.ended,
    c.codec, c.payload_bytes, c.payload
FROM last_ends AS e
LEFT JOIN kept_calls AS c ON c.job_id = e.job_id AND c.enqueued = e.enqueued AND c.number = 1
WHERE e.number = 1
    AND array_contains(:outcomes, e.outcome)
    AND unix_micros(e.ended) >= :since_us AND unix_micros(e.ended) < :until_us
    AND (:all_queues OR array_contains(:queues, e.queue))
    AND (:task = '' OR e.task = :task)
