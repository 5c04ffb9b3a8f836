-- Attempts of each shard by start latency in steps that double; -1 is for those without a start.
SELECT queue, shard, step, sum(sign) AS attempts,
  sum(CASE WHEN outcome = 'crashed' THEN sign ELSE 0 END) AS crashed
FROM (
  SELECT
    sign, queue, shard, outcome,
    CASE
      WHEN lateness_us IS NULL THEN -1
      WHEN lateness_us <= 0 THEN 0
      ELSE length(bin(lateness_us))
    END AS step
  FROM changes
) AS steps
GROUP BY queue, shard, step
