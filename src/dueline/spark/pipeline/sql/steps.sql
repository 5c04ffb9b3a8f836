-- The records of durable functions, in queues whose history is all: see `durable.log.described`.
-- Views: rows (the history). `registers_undo`: the step is to be undone if the function fails.
SELECT DISTINCT
    queue, id, job_id, enqueued, task, tenant, attempt, ended AS recorded,
    unix_micros(ended) - unix_micros(started) AS run_us,
    CAST(split_part(error, ' ', 1) AS INT) AS generation,
    split_part(error, ' ', 2) AS position,
    split_part(error, ' ', 3) AS kind,
    split_part(error, ' ', 4) AS state,
    split_part(error, ' ', 5) = 'undo' AS registers_undo,
    nullif(split_part(error, ' ', 6), '-') AS called_job,
    regexp_extract(error, '^(?:[^ ]+ ){6}(.*)$', 1) AS name
FROM rows
WHERE worker = '' AND outcome = 'recorded' AND error <> 'forgotten'
