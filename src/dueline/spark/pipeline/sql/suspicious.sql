-- Shards that are worse than others of their queue.
WITH places AS (
  SELECT
    *,
    sum(CASE WHEN step >= 0 THEN attempts ELSE 0 END)
      OVER (PARTITION BY queue, shard ORDER BY step) AS until,
    sum(CASE WHEN step >= 0 THEN attempts ELSE 0 END) OVER (PARTITION BY queue, shard) AS started
  FROM sums
),
shards AS (
  SELECT
    queue, shard, max(started) AS started, sum(crashed) AS crashed, sum(attempts) AS attempts,
    min(CASE WHEN step >= 0 AND 2 * until >= started THEN step END) AS step
  FROM places
  GROUP BY queue, shard
),
ranked AS (
  SELECT
    *,
    count(*) OVER (PARTITION BY queue) AS shards,
    count(step) OVER (PARTITION BY queue) AS stepped,
    sum(crashed) OVER (PARTITION BY queue) - crashed AS other_crashed,
    sum(attempts) OVER (PARTITION BY queue) - attempts AS other_attempts,
    CASE WHEN step IS NOT NULL THEN row_number() OVER (
      PARTITION BY queue ORDER BY CASE WHEN step IS NULL THEN 1 ELSE 0 END, step, shard
    ) END AS rank
  FROM shards
),
compared AS (
  SELECT
    *,
    max(CASE WHEN 2 * rank >= stepped AND 2 * rank <= stepped + 1 THEN step END)
      OVER (PARTITION BY queue) AS usual
  FROM ranked
)
SELECT
  queue, shard, 'slow' AS reason,
  concat(
    'half of ', started, ' starts are late by 2^', step - 1, ' us or more; the queue\'s by 2^',
    usual - 1
  ) AS evidence,
  concat('dueline shards lag --queue ', queue) AS command
FROM compared
WHERE shards >= :shards_min AND started >= :starts_min AND step >= :slow_step_min
  AND step >= usual + :slow_factor
UNION ALL
SELECT
  queue, shard, 'crashes' AS reason,
  concat(
    crashed, ' of ', attempts, ' attempts crashed; of the other shards\' ', other_crashed, ' of ',
    other_attempts
  ) AS evidence,
  concat('dueline shards lag --queue ', queue) AS command
FROM compared
WHERE shards >= :shards_min AND crashed >= :crashes_min
  AND crashed * other_attempts > 4 * other_crashed * attempts
