-- Violations of the rules in audit_rules.py by the records of durable functions.
-- Views: rows (the history), steps (its records).
WITH ends AS (
    SELECT
        job_id, enqueued,
        max(worker <> '' AND outcome = 'done') AS is_done,
        max(worker <> '' AND outcome IN ('dead', 'cancelled', 'expired')) AS has_failed
    FROM rows
    GROUP BY job_id, enqueued
),

places AS (
    SELECT
        job_id, enqueued, generation, position,
        max(queue) AS queue,
        max(attempt) AS attempt,
        max(registers_undo) AS registers_undo,
        max(kind = 'undo') AS is_undone,
        max(kind = 'end') AS is_end,
        max(kind = 'restart') AS is_left
    FROM steps
    GROUP BY job_id, enqueued, generation, position
),

generations AS (
    SELECT
        job_id, enqueued, generation,
        max(queue) AS queue,
        max(attempt) AS attempt,
        max(is_end) AS has_end,
        max(is_undone) AS has_undone,
        max(registers_undo AND NOT is_undone) AS has_left_out,
        max(is_left) AS is_left
    FROM places
    GROUP BY job_id, enqueued, generation
),

-- After a restart, later generations may not have recorded anything.
judged AS (
    SELECT
        g.*, e.is_done, e.has_failed,
        array_contains(:exact, g.queue) AS is_exact,
        NOT g.is_left AND g.generation = max(g.generation) OVER (
            PARTITION BY g.job_id, g.enqueued
        ) AS is_last
    FROM generations AS g
    JOIN ends AS e ON e.job_id = g.job_id AND e.enqueued = g.enqueued
)

SELECT 'position twice' AS rule, max(queue) AS queue, job_id, enqueued, max(attempt) AS attempt
FROM steps
GROUP BY
    job_id, enqueued, generation, kind = 'undo', position,
    CASE WHEN position = '-' THEN concat(kind, ' ', name) END
HAVING count(DISTINCT id) > 1
UNION ALL
SELECT 'child twice', max(queue), job_id, enqueued, max(attempt) FROM steps
WHERE called_job IS NOT NULL
GROUP BY job_id, enqueued, called_job
HAVING count(DISTINCT concat(CAST(generation AS STRING), ' ', position)) > 1
UNION ALL
SELECT 'undone', queue, job_id, enqueued, attempt FROM judged
WHERE is_exact AND has_undone AND NOT has_end
UNION ALL
SELECT 'not undone', queue, job_id, enqueued, attempt FROM judged
WHERE is_exact AND is_last AND has_failed AND NOT is_done AND has_left_out
UNION ALL
SELECT 'failed and done', queue, job_id, enqueued, attempt FROM judged
WHERE has_end AND is_done
