-- Starts in each minute, and those within the objective of start latency.
SELECT
  queue, date_trunc('minute', started) AS minute,
  sum(sign) AS started,
  sum(CASE WHEN lateness_us <= :target_us THEN sign ELSE 0 END) AS in_time
FROM changes
WHERE started IS NOT NULL
GROUP BY queue, date_trunc('minute', started)
