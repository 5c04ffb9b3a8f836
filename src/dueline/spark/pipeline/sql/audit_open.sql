-- Runs of jobs that have not ended: whether they are lost depends on the store.
-- Views: rows (the history).
SELECT max(queue) AS queue, job_id, enqueued
FROM rows
WHERE worker <> '' OR outcome <> 'skipped'
GROUP BY job_id, enqueued
HAVING NOT max(outcome IN ('done', 'cancelled', 'expired', 'lost'))
