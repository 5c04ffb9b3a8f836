-- The tables of a store, schema version 2; `@` stands for the schema's name. Run once, in one
-- transaction under an advisory lock.
--
-- lanes         one row for each listed lane; a lane with jobs is listed. Its number stands for
--               its five columns in `jobs`, and is never used twice.
-- marks         swept <= closed, buckets of one (queue, shard); both only grow. Who inserts holds
--               the row FOR SHARE until the commit, a process that raises them FOR UPDATE.
-- jobs          one row for each job, in the order of the Job tuple. No index has a column that a
--               claim changes, so a claim is a HOT update: there is room for that on each page, also
--               if all of its rows are claimed by one statement.
-- records       small versioned values; absent from expires_us on.
-- rows          the streams.
-- stream_marks  watermark_us <= closing_us of a stream's shard; both only grow. Nothing is
--               inserted up to closing_us, and nothing appears up to watermark_us (rule F9).
-- idle          channels of workers that wait for a notification; the first producer deletes
--               the row and notifies. Empty after a crash of the server.
--
-- Text is compared by its bytes, as elsewhere in dueline.

CREATE TABLE @lanes (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  queue text COLLATE "C" NOT NULL,
  shard bigint NOT NULL,
  bucket bigint NOT NULL,
  priority bigint NOT NULL,
  tenant text COLLATE "C" NOT NULL,
  listing bigint NOT NULL,
  UNIQUE (queue, shard, bucket, priority, tenant)
) WITH (fillfactor = 80);
CREATE INDEX lanes_by_listing ON @lanes (queue, shard, listing, bucket, priority, tenant);

CREATE TABLE @marks (
  queue text COLLATE "C" NOT NULL,
  shard bigint NOT NULL,
  swept bigint NOT NULL DEFAULT -1,
  closed bigint NOT NULL DEFAULT -1,
  PRIMARY KEY (queue, shard),
  CHECK (swept <= closed)
) WITH (fillfactor = 50);

CREATE TABLE @jobs (
  lane bigint NOT NULL,
  pos_us bigint NOT NULL,
  id bytea PRIMARY KEY,
  hop bigint NOT NULL,
  due_us bigint NOT NULL,
  enqueued_us bigint NOT NULL,
  task text COLLATE "C" NOT NULL,
  codec bigint NOT NULL,
  body bytea NOT NULL,
  opts bytea NOT NULL,
  at_us bigint NOT NULL,
  fence bigint NOT NULL DEFAULT 0,
  token bytea NOT NULL DEFAULT E'\\x00000000000000000000000000000000',
  worker text COLLATE "C" NOT NULL DEFAULT '',
  claimed_us bigint NOT NULL DEFAULT 0,
  errors bigint NOT NULL DEFAULT 0,
  crashes bigint NOT NULL DEFAULT 0,
  alone boolean NOT NULL DEFAULT false,
  state bigint NOT NULL DEFAULT 0,
  outcome bytea NOT NULL DEFAULT '',
  error text COLLATE "C" NOT NULL DEFAULT '',
  CHECK (pos_us <= at_us)
) WITH (
  fillfactor = 45,
  autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000,
  autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 200000,
  autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 50000,
  autovacuum_vacuum_cost_delay = 0
);
CREATE INDEX jobs_by_place ON @jobs (lane, pos_us, id);

CREATE TABLE @records (
  partition text COLLATE "C" NOT NULL,
  key text COLLATE "C" NOT NULL,
  version bytea NOT NULL,
  value bytea NOT NULL,
  expires_us bigint,
  PRIMARY KEY (partition, key)
) WITH (
  fillfactor = 80,
  autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0
);
CREATE INDEX records_by_expiry ON @records (expires_us) WHERE expires_us IS NOT NULL;

CREATE TABLE @rows (
  stream text COLLATE "C" NOT NULL,
  shard bigint NOT NULL,
  at_us bigint NOT NULL,
  id bytea NOT NULL,
  body bytea NOT NULL,
  PRIMARY KEY (stream, shard, at_us, id)
) WITH (autovacuum_vacuum_scale_factor = 0.05);

CREATE TABLE @stream_marks (
  stream text COLLATE "C" NOT NULL,
  shard bigint NOT NULL,
  closing_us bigint NOT NULL DEFAULT -1,
  watermark_us bigint NOT NULL DEFAULT -1,
  PRIMARY KEY (stream, shard),
  CHECK (watermark_us <= closing_us)
) WITH (fillfactor = 50);

CREATE UNLOGGED TABLE @idle (channel text COLLATE "C" PRIMARY KEY)
WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

CREATE TABLE @about (name text PRIMARY KEY, value text NOT NULL);
