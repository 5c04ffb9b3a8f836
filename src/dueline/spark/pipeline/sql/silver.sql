-- One row for each attempt. `rows` are all rows of some runs of jobs; `sign` is 1 for the rows as
-- they are, and -1 for a second copy of those that an earlier batch has brought.
WITH claims AS (
  SELECT
    *,
    row_number() OVER (
      PARTITION BY sign, job_id, enqueued, attempt
      ORDER BY at, outcome, id, shard, ended, error, worker
    ) AS place
  FROM rows
  WHERE worker <> ''
),
attempts AS (
  SELECT
    *,
    substring(
      regexp_replace(split_part(error, chr(10), 1), '[0-9a-fA-F]{8,}|[0-9]+', '#'), 1, 120
    ) AS kind,
    lag(outcome) OVER (PARTITION BY sign, job_id, enqueued ORDER BY attempt) AS before,
    outcome = 'dead' OR (
      outcome = 'crashed'
      AND sum(CASE WHEN outcome = 'crashed' THEN 1 ELSE 0 END)
        OVER (PARTITION BY sign, job_id, enqueued) > 1
    ) AS is_failure
  FROM claims
  WHERE place = 1
)
SELECT
  sign, queue, shard, job_id, attempt, task, tenant, priority, enqueued, due, claimed, started,
  ended, outcome, error, worker,
  CASE WHEN error <> '' THEN kind END AS fingerprint,
  unix_micros(started) - greatest(unix_micros(due), unix_micros(enqueued)) AS wait_us,
  unix_micros(started) - unix_micros(due) AS lateness_us,
  unix_micros(ended) - unix_micros(started) AS run_us,
  coalesce(before = 'crashed', false) AS is_takeover,
  is_failure,
  is_failure AND row_number() OVER (
    PARTITION BY sign, job_id, enqueued, queue, task, kind, is_failure ORDER BY attempt
  ) = 1 AS is_first_failure
FROM attempts
