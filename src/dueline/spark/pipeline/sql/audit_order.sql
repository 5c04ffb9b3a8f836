-- First attempts of jobs that were ready while too many less urgent jobs were claimed.
-- Jobs of one queue, shard and tenant are compared. Later attempts are not judged: a history does
-- not hold when a job became ready again. Neither are jobs whose time or priority was changed.
-- Views: attempts (the first row of each attempt), rows (the history).
WITH waits AS (
    SELECT
        a.queue, a.shard, coalesce(a.tenant, '') AS tenant, a.priority AS level, a.job_id,
        a.enqueued, a.attempt, unix_micros(a.claimed) AS claimed_us,
        greatest(unix_micros(a.due), unix_micros(a.enqueued)) + :seen_us AS ready_us
    FROM attempts AS a
    LEFT ANTI JOIN (
        SELECT job_id, enqueued FROM rows WHERE worker = '' AND outcome = 'changed'
    ) AS m ON m.job_id = a.job_id AND m.enqueued = a.enqueued
    WHERE a.attempt = 1
),

late AS (
    SELECT * FROM waits WHERE claimed_us > ready_us
),

levels AS (
    SELECT DISTINCT queue, shard, tenant, level FROM late
),

-- At one timestamp: the end of a wait, then claims, then the begin of a wait, in favor of the queue.
events AS (
    SELECT
        l.queue, l.shard, l.tenant, l.level, unix_micros(a.claimed) AS at_us, 1 AS kind,
        CAST(NULL AS STRING) AS job_id, CAST(NULL AS TIMESTAMP) AS enqueued,
        CAST(NULL AS INT) AS attempt
    FROM attempts AS a
    JOIN levels AS l
        ON l.queue = a.queue AND l.shard = a.shard AND l.tenant = coalesce(a.tenant, '')
        AND a.priority < l.level
    UNION ALL
    SELECT queue, shard, tenant, level, ready_us, 2, job_id, enqueued, attempt FROM late
    UNION ALL
    SELECT queue, shard, tenant, level, claimed_us, 0, job_id, enqueued, attempt FROM late
),

counted AS (
    SELECT *, sum(CASE WHEN kind = 1 THEN 1 ELSE 0 END) OVER (
        PARTITION BY queue, shard, tenant, level ORDER BY at_us, kind, job_id, enqueued
        ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS before
    FROM events
)

SELECT 'passed by' AS rule, queue, job_id, enqueued, attempt
FROM counted
WHERE kind <> 1
GROUP BY queue, job_id, enqueued, attempt
HAVING sum(CASE WHEN kind = 0 THEN before ELSE -before END) > :passed
