-- Claim due rows of lanes. Values: those of `wanted`; twice the last position that is read; then
-- the end of the claims, their token, their worker, and the present.
--
-- Rows are read in the order of positions. If there are as many as wanted and one of them is due
-- later than the last position, as a claim is that has expired, others may come before it: all up
-- to that time are read.
WITH {wanted},
found AS MATERIALIZED (
    SELECT wanted.place, wanted.lane, wanted.most, wanted.since, r.*
    FROM wanted CROSS JOIN LATERAL (
        SELECT ctid AS tid, pos_us, {old}
        FROM @jobs AS j
        WHERE j.lane = wanted.lane AND j.pos_us >= wanted.since AND j.pos_us <= %s AND j.at_us <= %s
        ORDER BY j.pos_us, j.id
        LIMIT wanted.most
        FOR UPDATE SKIP LOCKED
    ) AS r
),
unsure AS MATERIALIZED (
    SELECT place, lane, most, since, max(at_us) AS us
    FROM found
    GROUP BY place, lane, most, since
    HAVING count(*) = most AND max(at_us) > max(pos_us)
),
earlier AS MATERIALIZED (
    SELECT unsure.place, unsure.lane, r.*
    FROM unsure CROSS JOIN LATERAL (
        SELECT ctid AS tid, pos_us, {old}
        FROM @jobs AS j
        WHERE j.lane = unsure.lane AND j.pos_us >= unsure.since AND j.pos_us <= unsure.us
            AND j.at_us <= unsure.us
        ORDER BY j.at_us, j.id
        LIMIT unsure.most
        FOR UPDATE SKIP LOCKED
    ) AS r
),
taken AS MATERIALIZED (
    SELECT place, lane, tid, {old} FROM found WHERE place NOT IN (SELECT place FROM unsure)
    UNION ALL
    SELECT place, lane, tid, {old} FROM earlier
)
UPDATE @jobs AS jobs
SET at_us = %s, fence = fence + 1, token = %s, worker = %s, claimed_us = %s,
    crashes = jobs.crashes + (jobs.state = 2)::int, alone = jobs.alone OR jobs.state = 2, state = 1
FROM taken
WHERE jobs.ctid = taken.tid
RETURNING taken.place, {taken}, {columns}
