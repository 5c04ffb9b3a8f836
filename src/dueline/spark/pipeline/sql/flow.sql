-- Jobs that became ready and jobs that ended in each minute; their difference is the backlog.
SELECT queue, shard, date_trunc('minute', at) AS minute, sum(came) AS came, sum(went) AS went
FROM (
  SELECT queue, shard, least(could, coalesce(gone, could)) AS at, sign AS came, 0 AS went FROM runs
  UNION ALL
  SELECT queue, shard, gone AS at, 0 AS came, sign AS went FROM runs WHERE gone IS NOT NULL
) AS moves
GROUP BY queue, shard, date_trunc('minute', at)
