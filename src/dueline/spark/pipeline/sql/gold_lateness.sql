-- Start latencies in steps that double: step n is below 2**n microseconds, step 0 is 0 or less.
SELECT
  queue, tenant, minute, step, sum(sign) AS attempts
FROM (
  SELECT
    sign, queue, tenant, date_trunc('minute', ended) AS minute,
    CASE WHEN lateness_us <= 0 THEN 0 ELSE length(bin(lateness_us)) END AS step
  FROM changes
  WHERE lateness_us IS NOT NULL
) AS steps
GROUP BY queue, tenant, minute, step
