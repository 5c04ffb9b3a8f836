-- Violations of the rules in audit_rules.py that one run of a job shows by itself.
-- Views: rows (the history), living, expected, allowed.
WITH seen AS (
    SELECT
        queue, id, job_id, enqueued, attempt, task, coalesce(tenant, '') AS tenant, outcome,
        nullif(error, 'forgotten') AS error, worker, at,
        unix_micros(enqueued) AS enqueued_us, unix_micros(due) AS due_us,
        unix_micros(claimed) AS claimed_us, unix_micros(started) AS started_us,
        unix_micros(ended) AS ended_us,
        worker <> '' AS is_claim,
        outcome IN ('done', 'cancelled', 'expired', 'lost') AS is_end,
        outcome IN ('done', 'cancelled', 'expired', 'lost', 'dead') AS is_final,
        -- Another worker wrote the row because the attempt's own worker had died. That worker may
        -- have died, too, before it wrote a row for the previous attempt.
        outcome = 'crashed' OR (outcome IN ('dead', 'lost') AND started IS NULL) AS is_of_dead
    FROM rows
    WHERE worker <> '' OR outcome <> 'skipped' -- a skipped occurrence was never a job
),

runs AS (
    SELECT
        job_id, enqueued,
        max(queue) AS queue,
        max(is_claim OR is_end) AS is_seen,
        max(is_end) AS has_ended,
        min(CASE WHEN NOT is_claim AND is_end THEN attempt END) AS end_event,
        max(CASE WHEN NOT is_claim AND outcome = 'refused' THEN attempt END) AS refused,
        count(DISTINCT CASE WHEN NOT is_claim AND outcome = 'enqueued' THEN id END) AS enqueues,
        min(CASE WHEN NOT is_claim AND outcome = 'changed' THEN attempt END) AS first_changed,
        coalesce(collect_set(
            CASE WHEN NOT is_claim AND outcome = 'changed' THEN attempt END
        ), array()) AS changed,
        coalesce(collect_set(
            CASE WHEN NOT is_claim AND (outcome = 'changed' OR is_end) THEN attempt END
        ), array()) AS fences,
        coalesce(collect_set(
            CASE WHEN NOT is_claim AND outcome IN ('enqueued', 'changed') THEN task END
        ), array()) AS tasks,
        coalesce(collect_set(
            CASE WHEN NOT is_claim AND outcome IN ('enqueued', 'changed') THEN queue END
        ), array()) AS queues,
        coalesce(collect_set(
            CASE WHEN NOT is_claim AND outcome IN ('enqueued', 'changed') THEN tenant END
        ), array()) AS tenants
    FROM seen
    GROUP BY job_id, enqueued
),

ordered AS (
    SELECT *, max(enqueued) OVER (PARTITION BY job_id) AS last_enqueued
    FROM runs
),

-- A row without an enqueue time belongs to the last run of its job id.
lost AS (
    SELECT o.job_id, o.enqueued, o.queue, o.is_seen
    FROM ordered AS o
    LEFT ANTI JOIN living AS l
        ON l.job_id = o.job_id AND coalesce(l.enqueued, o.last_enqueued) = o.enqueued
    WHERE :has_living AND NOT o.has_ended
),

claims AS (
    SELECT
        s.*,
        row_number() OVER (
            PARTITION BY s.job_id, s.enqueued, s.attempt ORDER BY s.at, s.outcome, s.id, s.worker
        ) AS number,
        max(s.is_of_dead) OVER claim AS has_crashed,
        min(s.claimed_us) OVER claim <> max(s.claimed_us) OVER claim
        OR min(s.worker) OVER claim <> max(s.worker) OVER claim AS is_claimed_twice,
        -- A worker that was presumed dead may have written its own row, too (rule F3).
        coalesce(
            min(CASE WHEN NOT s.is_of_dead THEN s.ended_us END) OVER claim
            <> max(CASE WHEN NOT s.is_of_dead THEN s.ended_us END) OVER claim, false
        )
        OR coalesce(
            min(CASE WHEN s.is_final AND NOT s.is_of_dead THEN s.outcome END) OVER claim
            <> max(CASE WHEN s.is_final AND NOT s.is_of_dead THEN s.outcome END) OVER claim, false
        )
        OR coalesce(
            min(CASE WHEN s.is_final AND NOT s.is_of_dead THEN s.error END) OVER claim
            <> max(CASE WHEN s.is_final AND NOT s.is_of_dead THEN s.error END) OVER claim, false
        )
        OR coalesce(
            min(CASE WHEN NOT s.is_final AND NOT s.is_of_dead THEN s.outcome END) OVER claim
            <> max(CASE WHEN NOT s.is_final AND NOT s.is_of_dead THEN s.outcome END) OVER claim,
            false
        ) AS is_split
    FROM seen AS s
    WHERE s.is_claim
    WINDOW claim AS (PARTITION BY s.job_id, s.enqueued, s.attempt)
),

lives AS (
    SELECT
        c.*,
        least(r.end_event, min(CASE WHEN c.is_end THEN c.attempt END) OVER (
            PARTITION BY c.job_id, c.enqueued
        )) AS end_attempt,
        r.enqueues, r.first_changed, r.changed, r.fences, r.tasks, r.queues,
        r.tenants,
        lag(c.outcome) OVER life AS before,
        lag(c.claimed_us) OVER life AS before_claimed_us,
        lag(c.ended_us) OVER life AS before_ended_us,
        coalesce(lag(c.attempt) OVER life, 0) AS before_attempt,
        first_value(c.task) OVER life AS first_task,
        first_value(c.queue) OVER life AS first_queue,
        first_value(c.tenant) OVER life AS first_tenant,
        c.attempt = max(c.attempt) OVER (PARTITION BY c.job_id, c.enqueued) AS is_last,
        c.outcome = 'retried' AND NOT c.has_crashed AS is_failure,
        (count_if(c.outcome = 'dead') OVER life)
        - CASE WHEN c.outcome = 'dead' THEN 1 ELSE 0 END AS deaths,
        array_contains(:exact, c.queue) AS is_exact
    FROM claims AS c
    JOIN runs AS r ON r.job_id = c.job_id AND r.enqueued = c.enqueued
    WHERE c.number = 1
    WINDOW life AS (PARTITION BY c.job_id, c.enqueued ORDER BY c.attempt)
),

-- A retry by hand starts again from 0 after each death.
counted AS (
    SELECT
        v.*, a.most,
        l.job_id IS NOT NULL AND (:all_whole OR array_contains(:whole, v.queue)) AS is_lost,
        e.job_id IS NULL AS is_unexpected,
        count_if(v.is_failure) OVER (
            PARTITION BY v.job_id, v.enqueued, v.deaths ORDER BY v.attempt
        ) AS failures
    FROM lives AS v
    LEFT JOIN allowed AS a ON a.task = v.task
    LEFT JOIN lost AS l ON l.job_id = v.job_id AND l.enqueued = v.enqueued
    LEFT JOIN (SELECT DISTINCT job_id FROM expected) AS e ON e.job_id = v.job_id
),

broken AS (
    SELECT
        queue, job_id, enqueued, attempt,
        explode(array_compact(array(
            CASE WHEN outcome = 'done' AND started_us IS NULL AND task <> '' THEN 'no start' END,
            CASE WHEN ended_us < started_us - :early_us THEN 'ended first' END,
            CASE WHEN started_us < claimed_us - :early_us THEN 'started first' END,
            CASE WHEN started_us < enqueued_us - :early_us THEN 'started before enqueued' END,
            -- A crash has the end of the lease.
            CASE WHEN outcome <> 'crashed' AND ended_us > :now_us + :ahead_us
                THEN 'in the future' END,
            CASE WHEN is_claimed_twice THEN 'one fence' END,
            CASE WHEN is_split THEN 'another end' END,
            CASE WHEN started_us < due_us - :early_us AND coalesce(first_changed >= attempt, true)
                THEN 'early' END,
            CASE WHEN attempt > end_attempt
                THEN CASE WHEN is_end THEN 'two ends' ELSE 'after its end' END END,
            CASE WHEN before = 'crashed' AND claimed_us < before_ended_us
                THEN 'before the lease ended' END,
            -- Jobs that are due at once after an attempt keep their first time. So a claim whose
            -- worker read its clock first, and then waited for the store, may find them.
            CASE WHEN before NOT IN (
                    'crashed', 'suspended', 'restarted', 'stopped', 'given_back'
                )
                AND before_ended_us > claimed_us + :early_us THEN 'late verdict' END,
            CASE WHEN claimed_us < before_claimed_us - :early_us
                AND coalesce(
                    before NOT IN ('suspended', 'restarted', 'stopped', 'given_back'), true
                )
                THEN 'time went back' END,
            CASE WHEN NOT array_contains(tasks, task) AND (enqueues > 0 OR task <> first_task)
                THEN 'another task' END,
            CASE WHEN NOT array_contains(queues, queue) AND (enqueues > 0 OR queue <> first_queue)
                THEN 'another queue' END,
            CASE WHEN NOT array_contains(tenants, tenant)
                AND (enqueues > 0 OR tenant <> first_tenant) THEN 'another tenant' END,
            CASE WHEN is_exact AND before = 'dead'
                AND size(filter(changed, one -> one >= before_attempt AND one < attempt)) = 0
                THEN 'after its death' END,
            CASE WHEN is_exact AND enqueues = 0 AND is_last THEN 'not enqueued' END,
            CASE WHEN is_exact AND NOT is_of_dead AND attempt - before_attempt - 1
                > size(filter(fences, one -> one > before_attempt AND one < attempt))
                THEN 'missing' END,
            CASE WHEN is_failure AND failures = most THEN 'over attempts' END,
            CASE WHEN is_lost AND is_last AND outcome <> 'dead' THEN 'gone' END,
            CASE WHEN is_lost AND is_last AND outcome = 'dead' THEN 'dead and gone' END,
            CASE WHEN :has_expected AND is_last AND is_unexpected THEN 'nobody asked' END
        ))) AS rule
    FROM counted
)

SELECT rule, queue, job_id, enqueued, attempt FROM broken
UNION ALL
SELECT 'no trace', queue, job_id, enqueued, 0 FROM lost
WHERE NOT is_seen AND (:all_whole OR array_contains(:whole, queue))
UNION ALL
SELECT DISTINCT 'no trace', CAST(NULL AS STRING), e.job_id, CAST(NULL AS TIMESTAMP), 0
FROM expected AS e
LEFT ANTI JOIN seen AS s ON s.job_id = e.job_id
LEFT ANTI JOIN living AS l ON l.job_id = e.job_id
WHERE :has_living
UNION ALL
-- A claim that has no row but that of its outcome, which was refused.
SELECT 'after its end', r.queue, r.job_id, r.enqueued, r.refused
FROM runs AS r
LEFT JOIN (
    SELECT
        job_id, enqueued, min(CASE WHEN is_end THEN attempt END) AS end_attempt,
        max(attempt) AS last_attempt
    FROM lives
    GROUP BY job_id, enqueued
) AS l ON l.job_id = r.job_id AND l.enqueued = r.enqueued
WHERE r.refused > least(r.end_event, l.end_attempt) AND r.refused > coalesce(l.last_attempt, 0)
UNION ALL
SELECT 'enqueued twice', queue, job_id, enqueued, 0 FROM runs
WHERE enqueues > 1 AND array_contains(:exact, queue)
