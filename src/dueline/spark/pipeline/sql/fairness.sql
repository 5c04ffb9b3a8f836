-- Jain's index of the tenants that had attempts in a minute: 1 if each had as many.
SELECT
  queue, minute, count(*) AS tenants, sum(attempts) AS attempts,
  CAST(sum(attempts) AS DOUBLE) * CAST(sum(attempts) AS DOUBLE)
    / CAST(count(*) * sum(attempts * attempts) AS DOUBLE) AS jain
FROM sums
GROUP BY queue, minute
