-- How much longer a tenant's jobs waited in a minute than those of a tenant with as many attempts or
-- more, at most: where tenants take turns, one with fewer jobs waits less.
WITH of_tenants AS (
  SELECT
    queue, minute, tenant, sum(attempts) AS attempts,
    CAST(floor(sum(lateness_us) / sum(attempts)) AS BIGINT) AS late_us
  FROM sums
  GROUP BY queue, minute, tenant
  HAVING sum(attempts) > 0
),
compared AS (
  SELECT
    *,
    late_us - min(late_us) OVER (
      PARTITION BY queue, minute ORDER BY attempts DESC
      RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS over_us
  FROM of_tenants
),
ranked AS (
  SELECT *, max(over_us) OVER (PARTITION BY queue, minute) AS most_us FROM compared
)
SELECT
  queue, minute, count(*) AS tenants, sum(attempts) AS attempts, max(over_us) AS over_us,
  min(CASE WHEN over_us = most_us AND over_us > 0 THEN tenant END) AS tenant
FROM ranked
GROUP BY queue, minute
