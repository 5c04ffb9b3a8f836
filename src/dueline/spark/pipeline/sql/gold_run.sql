-- Run times of handlers in steps that double: step n is below 2**n microseconds, step 0 is 0 or less.
SELECT
  queue, tenant, minute, step, sum(sign) AS attempts
FROM (
  SELECT
    sign, queue, tenant, date_trunc('minute', ended) AS minute,
    CASE WHEN run_us <= 0 THEN 0 ELSE length(bin(run_us)) END AS step
  FROM changes
  WHERE run_us IS NOT NULL
) AS steps
GROUP BY queue, tenant, minute, step
