-- Start latencies in steps that double: 0 is none, n is below 2**n microseconds.
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
