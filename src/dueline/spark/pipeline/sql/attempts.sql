-- The first row of each attempt. A worker that ended too late may have written another.
SELECT * FROM (
    SELECT *, row_number() OVER (
        PARTITION BY job_id, enqueued, attempt ORDER BY at, outcome, id, worker
    ) AS number
    FROM rows
    WHERE worker <> ''
)
WHERE number = 1
