-- Causes of dead jobs and dead workers; `last` is the minute of the last.
SELECT
  queue, task, fingerprint, sum(jobs) AS jobs, sum(attempts) AS attempts, sum(crashed) AS crashed,
  sum(dead) AS dead, max(minute) AS last
FROM sums
GROUP BY queue, task, fingerprint
