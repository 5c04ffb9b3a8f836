-- Rows of silver that are new (sign 1) or no longer right (sign -1).
SELECT
  queue, shard, job_id, attempt, task, tenant, priority, enqueued, due, claimed, started, ended,
  outcome, error, worker, fingerprint, wait_us, lateness_us, run_us, is_takeover, is_failure,
  is_first_failure, sum(sign) AS sign
FROM state
GROUP BY
  queue, shard, job_id, attempt, task, tenant, priority, enqueued, due, claimed, started, ended,
  outcome, error, worker, fingerprint, wait_us, lateness_us, run_us, is_takeover, is_failure,
  is_first_failure
HAVING sum(sign) <> 0
