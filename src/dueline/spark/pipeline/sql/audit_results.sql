-- Attempts whose stored result differs from the one that they had.
-- Views: attempts (the first row of each attempt), results.
SELECT 'another result' AS rule, a.queue, a.job_id, a.enqueued, a.attempt
FROM attempts AS a
JOIN results AS r ON r.job_id = a.job_id AND r.finished = a.ended
WHERE a.outcome = 'done' AND substring(sha2(r.value, 256), 1, :digits) <> a.digest
