-- Violations of the rules in audit_rules.py by sections that must not repeat.
-- Views: rows (the history).
WITH sections AS (
    SELECT
        job_id, enqueued, attempt,
        max(queue) AS queue,
        count(DISTINCT CASE WHEN error = 'began' THEN id END)
        > count(DISTINCT CASE WHEN error <> 'began' THEN id END) AS is_open,
        min(CASE WHEN error = 'began' THEN unix_micros(ended) END) AS began_us,
        max(CASE WHEN error = 'ended' THEN unix_micros(ended) END) AS over_us
    FROM rows
    WHERE worker = '' AND outcome = 'section' AND array_contains(:exact, queue)
    GROUP BY job_id, enqueued, attempt
),

-- What follows a section: starts and ends under later claims, and ends under its own.
later AS (
    SELECT s.job_id, s.enqueued, s.attempt AS section, s.queue, r.attempt, 'went on' AS rule
    FROM sections AS s
    JOIN rows AS r ON r.job_id = s.job_id AND r.enqueued = s.enqueued
    WHERE s.is_open AND r.worker <> '' AND (
        (r.attempt > s.attempt AND (r.started IS NOT NULL OR r.outcome = 'crashed'))
        OR (r.attempt >= s.attempt AND r.outcome IN ('cancelled', 'expired', 'lost'))
    )
    UNION ALL
    SELECT s.job_id, s.enqueued, s.attempt, s.queue, n.attempt, 'repeated'
    FROM sections AS s
    JOIN sections AS n ON n.job_id = s.job_id AND n.enqueued = s.enqueued
    WHERE n.attempt > s.attempt AND n.began_us < s.over_us + :section_us
)

-- An operator who retries a job deletes its marks.
SELECT DISTINCT l.rule, l.queue, l.job_id, l.enqueued, l.attempt
FROM later AS l
LEFT ANTI JOIN rows AS c
    ON c.job_id = l.job_id AND c.enqueued = l.enqueued AND c.worker = ''
    AND c.outcome = 'changed' AND c.attempt >= l.section AND c.attempt < l.attempt
