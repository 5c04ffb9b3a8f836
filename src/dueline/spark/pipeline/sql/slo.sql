-- Starts within the objective, and the burn rate of the error budget (1 is on budget, null is no
-- start) in windows of whole minutes that end with the newest minute of the table.
SELECT
  queue, started, in_time, in_time / started AS share,
  started_5m, started_1h, started_6h,
  CASE WHEN started_5m > 0 THEN (1 - in_time_5m / started_5m) / (1 - :objective) END AS burn_5m,
  CASE WHEN started_1h > 0 THEN (1 - in_time_1h / started_1h) / (1 - :objective) END AS burn_1h,
  CASE WHEN started_6h > 0 THEN (1 - in_time_6h / started_6h) / (1 - :objective) END AS burn_6h
FROM (
  SELECT
    queue,
    CAST(sum(started) AS DOUBLE) AS started,
    CAST(sum(in_time) AS DOUBLE) AS in_time,
    CAST(sum(CASE WHEN age < 5 THEN started ELSE 0 END) AS DOUBLE) AS started_5m,
    CAST(sum(CASE WHEN age < 5 THEN in_time ELSE 0 END) AS DOUBLE) AS in_time_5m,
    CAST(sum(CASE WHEN age < 60 THEN started ELSE 0 END) AS DOUBLE) AS started_1h,
    CAST(sum(CASE WHEN age < 60 THEN in_time ELSE 0 END) AS DOUBLE) AS in_time_1h,
    CAST(sum(CASE WHEN age < 360 THEN started ELSE 0 END) AS DOUBLE) AS started_6h,
    CAST(sum(CASE WHEN age < 360 THEN in_time ELSE 0 END) AS DOUBLE) AS in_time_6h
  FROM (
    SELECT *, (unix_micros(max(minute) OVER ()) - unix_micros(minute)) / 60000000 AS age FROM sums
  ) AS aged
  GROUP BY queue
) AS counts
