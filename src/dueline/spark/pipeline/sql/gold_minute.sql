-- Attempts that ended in each minute, and sums of their durations.
SELECT
  queue, tenant, date_trunc('minute', ended) AS minute,
  sum(sign) AS attempts,
  sum(CASE WHEN outcome = 'done' THEN sign ELSE 0 END) AS done,
  sum(CASE WHEN outcome = 'cancelled' THEN sign ELSE 0 END) AS cancelled,
  sum(CASE WHEN outcome = 'expired' THEN sign ELSE 0 END) AS expired,
  sum(CASE WHEN outcome = 'lost' THEN sign ELSE 0 END) AS lost,
  sum(CASE WHEN outcome = 'dead' THEN sign ELSE 0 END) AS dead,
  sum(CASE WHEN outcome = 'retried' THEN sign ELSE 0 END) AS retried,
  sum(CASE WHEN outcome = 'crashed' THEN sign ELSE 0 END) AS crashed,
  sum(CASE WHEN outcome = 'snoozed' THEN sign ELSE 0 END) AS snoozed,
  sum(CASE WHEN outcome = 'given_back' THEN sign ELSE 0 END) AS given_back,
  sum(CASE WHEN is_takeover THEN sign ELSE 0 END) AS takeovers,
  sum(sign * coalesce(wait_us, 0)) AS wait_us,
  sum(sign * coalesce(lateness_us, 0)) AS lateness_us,
  sum(sign * coalesce(run_us, 0)) AS run_us
FROM changes
GROUP BY queue, tenant, date_trunc('minute', ended)
