-- Claim rows of lanes that become due soon. Values: those of `wanted`; the present and the last
-- position that is read; then how long claims last from the due time of each row, their token, their
-- worker, and the present.
WITH {wanted},
taken AS MATERIALIZED (
    SELECT wanted.place, wanted.lane, r.*
    FROM wanted CROSS JOIN LATERAL (
        SELECT ctid AS tid, {old}
        FROM @jobs AS j
        WHERE j.lane = wanted.lane AND j.pos_us > %s AND j.pos_us <= %s
            AND j.at_us = j.pos_us AND j.state = 0 AND j.outcome = ''
        ORDER BY j.pos_us, j.id
        LIMIT wanted.most
        FOR UPDATE SKIP LOCKED
    ) AS r
)
UPDATE @jobs AS jobs
SET at_us = jobs.at_us + %s, fence = fence + 1, token = %s, worker = %s, claimed_us = %s,
    crashes = jobs.crashes + (jobs.state = 2)::int, alone = jobs.alone OR jobs.state = 2, state = 1
FROM taken
WHERE jobs.ctid = taken.tid
RETURNING taken.place, {taken}, {columns}
