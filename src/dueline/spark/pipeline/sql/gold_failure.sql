-- Attempts that ended dead, and crashes of jobs that crashed more than once, by error and minute.
-- A job that fails several times in the same way counts in the minute of its first failure.
SELECT
  queue, task, coalesce(fingerprint, '') AS fingerprint, date_trunc('minute', ended) AS minute,
  sum(sign) AS attempts,
  sum(CASE WHEN outcome = 'crashed' THEN sign ELSE 0 END) AS crashed,
  sum(CASE WHEN outcome = 'dead' THEN sign ELSE 0 END) AS dead,
  sum(CASE WHEN is_first_failure THEN sign ELSE 0 END) AS jobs
FROM changes
WHERE is_failure
GROUP BY queue, task, coalesce(fingerprint, ''), date_trunc('minute', ended)
