-- The tasks whose attempts failed, and their most frequent error.
WITH ends AS (
  SELECT
    queue, task, ended, fingerprint, outcome,
    CASE WHEN outcome IN ('retried', 'dead', 'crashed') THEN 1 ELSE 0 END AS failed
  FROM asked
),
causes AS (
  SELECT
    queue, task, fingerprint, count(*) AS times,
    row_number() OVER (PARTITION BY queue, task ORDER BY count(*) DESC, fingerprint) AS place
  FROM ends
  WHERE failed = 1
  GROUP BY queue, task, fingerprint
),
tasks AS (
  SELECT
    queue, task, count(*) AS attempts, sum(failed) AS failed,
    sum(CASE WHEN outcome = 'dead' THEN 1 ELSE 0 END) AS dead,
    sum(CASE WHEN outcome = 'crashed' THEN 1 ELSE 0 END) AS crashed,
    max(CASE WHEN failed = 1 THEN ended END) AS last
  FROM ends
  GROUP BY queue, task
  HAVING sum(failed) > 0
)
SELECT
  tasks.queue, tasks.task, attempts, failed,
  CAST(failed AS DOUBLE) / CAST(attempts AS DOUBLE) AS share, dead, crashed, last,
  fingerprint AS error, times
FROM tasks
JOIN causes ON causes.queue = tasks.queue AND causes.task = tasks.task AND place = 1
