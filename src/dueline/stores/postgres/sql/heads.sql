-- The heads of lanes. Values: those of `wanted`, where `most` is the position of the new cursor;
-- three times the present; twice how many rows from there on are read.
--
-- For each lane, of the rows from `since` to before `most`: the lowest time after the present and
-- the lowest until then, and whether all of the latter wait; and the lowest time of the rest, which
-- the first ones of them show if one of these waits (see HEAD in lanes.py).
WITH {wanted}
SELECT place, lane, behind.*, CASE WHEN ahead.is_known THEN ahead.us ELSE {head} END
FROM wanted
CROSS JOIN LATERAL (
    SELECT min(j.at_us) FILTER (WHERE j.at_us > %s),
        min(j.at_us) FILTER (WHERE j.at_us <= %s),
        coalesce(bool_and(j.at_us = j.pos_us) FILTER (WHERE j.at_us <= %s), true)
    FROM @jobs AS j
    WHERE j.lane = wanted.lane AND j.pos_us >= wanted.since AND j.pos_us < wanted.most
) AS behind
CROSS JOIN LATERAL (
    SELECT min(at_us) AS us, coalesce(bool_or(at_us = pos_us), false) OR count(*) < %s AS is_known
    FROM (
        SELECT j.at_us, j.pos_us
        FROM @jobs AS j
        WHERE j.lane = wanted.lane AND j.pos_us >= wanted.most
        ORDER BY j.pos_us, j.id
        LIMIT %s
    ) AS rest
) AS ahead
