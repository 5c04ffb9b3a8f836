-- The first time at which a job was enqueued, by queue and by what its history says.
-- Views: rows (the history), state (what the audit before has left).
SELECT queue, outcome, min(enqueued) AS enqueued
FROM (
    SELECT queue, outcome, enqueued FROM rows
    UNION ALL
    SELECT queue, outcome, enqueued FROM state WHERE kind = 'first'
)
GROUP BY queue, outcome
