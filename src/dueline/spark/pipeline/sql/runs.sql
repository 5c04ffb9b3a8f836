-- When each run of a job became ready, and when it ended. `rows` are as in silver.sql.
SELECT
  sign, queue, min(shard) AS shard, job_id, enqueued,
  min(greatest(due, enqueued)) AS could,
  max(CASE WHEN outcome IN ('done', 'cancelled', 'expired', 'lost', 'dead') THEN ended END) AS gone
FROM rows
WHERE outcome <> 'changed'
GROUP BY sign, queue, job_id, enqueued
