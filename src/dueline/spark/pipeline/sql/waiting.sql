-- How long the jobs of each tenant waited after they were due, and the tenant's share of all waiting.
WITH tenants AS (
  SELECT
    queue, tenant, count(*) AS started, sum(greatest(lateness_us, 0)) AS late_us,
    max(lateness_us) AS longest_us,
    sum(CASE WHEN lateness_us >= 1000000 THEN 1 ELSE 0 END) AS over_1s,
    sum(CASE WHEN lateness_us >= 60000000 THEN 1 ELSE 0 END) AS over_1min
  FROM asked
  WHERE started IS NOT NULL
  GROUP BY queue, tenant
),
queues AS (
  SELECT queue AS of_queue, sum(late_us) AS whole_us FROM tenants GROUP BY queue
)
SELECT
  queue, tenant, started, CAST(late_us AS DOUBLE) / CAST(started AS DOUBLE) / 1e6 AS mean_s,
  CAST(longest_us AS DOUBLE) / 1e6 AS longest_s, over_1s, over_1min,
  CASE WHEN whole_us > 0 THEN CAST(late_us AS DOUBLE) / CAST(whole_us AS DOUBLE) ELSE 0.0 END
    AS share
FROM tenants
JOIN queues ON of_queue = queue
