-- Claim due rows of lanes that were only inserted. Values: as of `claim_due`.
--
-- Such rows have columns that need not be read back, and no expired claim comes before them:
-- nothing is claimed if there is another row among them.
WITH {wanted},
found AS MATERIALIZED (
    SELECT r.*
    FROM wanted CROSS JOIN LATERAL (
        SELECT ctid AS tid, pos_us, at_us, state
        FROM @jobs AS j
        WHERE j.lane = wanted.lane AND j.pos_us >= wanted.since AND j.pos_us <= %s AND j.at_us <= %s
        ORDER BY j.pos_us, j.id
        LIMIT wanted.most
        FOR UPDATE SKIP LOCKED
    ) AS r
)
UPDATE @jobs AS jobs
SET at_us = %s, fence = fence + 1, token = %s, worker = %s, claimed_us = %s, state = 1
WHERE jobs.ctid = ANY(ARRAY(
    SELECT tid FROM found
    WHERE NOT EXISTS (SELECT 1 FROM found WHERE state <> 0 OR at_us <> pos_us)
))
RETURNING {kept}
