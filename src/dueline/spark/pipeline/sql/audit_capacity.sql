-- Attempts that started while the allowed number of their task was running.
-- Crashed attempts do not count: their end is recorded too late.
-- Views: attempts (the first row of each attempt), capacities.
WITH ran AS (
    SELECT
        a.task, a.queue, a.job_id, a.enqueued, a.attempt, c.most,
        unix_micros(a.started) AS begun_us, unix_micros(a.ended) - :early_us AS stopped_us
    FROM attempts AS a
    JOIN capacities AS c ON c.task = a.task
    WHERE a.outcome <> 'crashed' AND unix_micros(a.ended) - :early_us > unix_micros(a.started)
),

edges AS (
    SELECT *, begun_us AS at_us, 1 AS step FROM ran
    UNION ALL
    SELECT *, stopped_us, -1 FROM ran
),

counted AS (
    SELECT *, sum(step) OVER (
        PARTITION BY task ORDER BY at_us, step, job_id, enqueued, attempt
        ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS running
    FROM edges
)

SELECT 'crowded' AS rule, queue, job_id, enqueued, attempt
FROM counted WHERE step = 1 AND running > most
