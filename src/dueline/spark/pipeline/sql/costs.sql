-- How long handlers ran, by tenant and task; `failed_s` is the time of attempts that failed.
SELECT
  tenant, task, count(*) AS attempts, CAST(sum(run_us) AS DOUBLE) / 1e6 AS run_s,
  CAST(sum(CASE WHEN outcome IN ('retried', 'dead') THEN run_us ELSE 0 END) AS DOUBLE) / 1e6
    AS failed_s
FROM asked
WHERE run_us IS NOT NULL
GROUP BY tenant, task
