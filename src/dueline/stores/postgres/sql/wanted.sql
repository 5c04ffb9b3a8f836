-- The numbers of wanted lanes, as the first part of WITH. Values: of each lane its five columns, the
-- maximum number of rows, and where its cursor is: the number of the lane and a position.
wanted AS MATERIALIZED (
    SELECT w.place, l.id AS lane, w.most,
        CASE WHEN l.id = w.since_lane THEN w.since ELSE {least} END AS since
    FROM unnest(
            %s::text[], %s::bigint[], %s::bigint[], %s::bigint[], %s::text[], %s::bigint[],
            %s::bigint[], %s::bigint[]
        ) WITH ORDINALITY
        AS w (queue, shard, bucket, priority, tenant, most, since_lane, since, place)
    JOIN @lanes l ON l.queue = w.queue AND l.shard = w.shard AND l.bucket = w.bucket
        AND l.priority = w.priority AND l.tenant = w.tenant
)
