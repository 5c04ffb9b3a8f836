-- The attempts that a simulation replays: those that ran, of jobs that were ready in a period.
-- `pools` has the pool of each queue: queues with a worker in common are in one.
WITH claims AS (
  SELECT
    pools.pool, rows.*,
    unix_micros(greatest(rows.due, rows.enqueued)) AS first_us,
    row_number() OVER (
      PARTITION BY rows.job_id, rows.enqueued, rows.attempt
      ORDER BY rows.at, rows.outcome, rows.id, rows.shard, rows.ended, rows.error, rows.worker
    ) AS place
  FROM rows
  JOIN pools ON pools.queue = rows.queue
  WHERE
    rows.worker <> ''
    AND rows.outcome <> 'given_back'
    AND (rows.started IS NOT NULL OR rows.outcome = 'crashed')
    AND unix_micros(greatest(rows.due, rows.enqueued)) >= :since_us
    AND unix_micros(greatest(rows.due, rows.enqueued)) < :until_us
),
attempts AS (
  SELECT
    *,
    row_number() OVER (PARTITION BY job_id, enqueued ORDER BY attempt) AS nth,
    lag(outcome) OVER (PARTITION BY job_id, enqueued ORDER BY attempt) AS outcome_before,
    lag(ended) OVER (PARTITION BY job_id, enqueued ORDER BY attempt) AS ended_before,
    lag(again) OVER (PARTITION BY job_id, enqueued ORDER BY attempt) AS again_before
  FROM claims
  WHERE place = 1
)
SELECT
  pool, job_id, first_us,
  concat_ws(
    chr(30), queue, task, tenant, CAST(priority AS STRING), coalesce(limits, ''),
    CAST(shard AS STRING)
  ) AS kind,
  CAST(nth AS BIGINT) AS nth,
  CASE
    WHEN nth = 1 THEN first_us
    WHEN outcome_before = 'crashed' THEN unix_micros(ended_before)
    -- A durable function was woken before its wait was over, and the history does not say when.
    WHEN outcome_before = 'suspended' AND again_before > claimed THEN -1
    ELSE coalesce(unix_micros(again_before), -1)
  END AS ready_us,
  CASE WHEN unix_micros(due) - unix_micros(enqueued) > :lead_us THEN 1 ELSE 0 END AS is_early,
  unix_micros(claimed) AS claimed_us,
  unix_micros(coalesce(started, claimed)) AS started_us,
  greatest(unix_micros(ended), unix_micros(coalesce(started, claimed))) AS ended_us,
  worker
FROM attempts
ORDER BY pool, first_us, job_id, enqueued, attempt
