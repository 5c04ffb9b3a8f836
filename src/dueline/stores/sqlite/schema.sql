-- The tables of a queue file, schema version 2. Run once, in one transaction, on an empty file.
--
-- lanes    one row a lane that is listed or holds jobs. Its integer stands for the five columns
--          in every job (measured: 190-250k claims and drops a second against 128-142k with
--          the columns themselves as key). AUTOINCREMENT: a number is never given twice.
--          listing: the bucket from which the lane is looked at; NULL while it is unlisted.
-- marks    swept <= closed, buckets of one (queue, shard); both only grow. No row reads as -1.
-- jobs     one row a job, in the order of the Job tuple. body is NULL where it is too long to be
--          carried along by every update; it then lies in bodies (8 KiB: 54k against 17k jobs/s).
-- records  small versioned values; absent from expires_us on.
-- rows     the streams.
-- dueline_stream_marks
--          the mark of a stream's shard: rows at or below it never change. It only grows. No row
--          reads as -1.

CREATE TABLE lanes (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  queue TEXT NOT NULL,
  shard INTEGER NOT NULL,
  bucket INTEGER NOT NULL,
  priority INTEGER NOT NULL,
  tenant TEXT NOT NULL,
  listing INTEGER,
  UNIQUE (queue, shard, bucket, priority, tenant)
) STRICT;
CREATE INDEX lanes_by_listing
  ON lanes (queue, shard, listing, bucket, priority, tenant) WHERE listing IS NOT NULL;

CREATE TABLE marks (
  queue TEXT NOT NULL,
  shard INTEGER NOT NULL,
  swept INTEGER NOT NULL,
  closed INTEGER NOT NULL,
  PRIMARY KEY (queue, shard),
  CHECK (swept < 4611686018427387904 AND closed < 4611686018427387904)
) STRICT, WITHOUT ROWID;

CREATE TABLE jobs (
  lane INTEGER NOT NULL,
  pos_us INTEGER NOT NULL,
  id BLOB NOT NULL,
  hop INTEGER NOT NULL,
  due_us INTEGER NOT NULL,
  enqueued_us INTEGER NOT NULL,
  task TEXT NOT NULL,
  codec INTEGER NOT NULL,
  body BLOB,
  opts BLOB NOT NULL,
  at_us INTEGER NOT NULL,
  fence INTEGER NOT NULL DEFAULT 0,
  token BLOB NOT NULL DEFAULT x'00000000000000000000000000000000',
  worker TEXT NOT NULL DEFAULT '',
  claimed_us INTEGER NOT NULL DEFAULT 0,
  errors INTEGER NOT NULL DEFAULT 0,
  crashes INTEGER NOT NULL DEFAULT 0,
  alone INTEGER NOT NULL DEFAULT 0,
  state INTEGER NOT NULL DEFAULT 0,
  outcome BLOB NOT NULL DEFAULT x'',
  error TEXT NOT NULL DEFAULT '',
  CHECK (hop < 4611686018427387904 AND fence < 4611686018427387904),
  CHECK (errors < 4611686018427387904 AND crashes < 4611686018427387904)
) STRICT;
CREATE INDEX jobs_by_time ON jobs (lane, at_us, id);
CREATE UNIQUE INDEX jobs_by_id ON jobs (id);

CREATE TABLE bodies (id BLOB PRIMARY KEY, body BLOB NOT NULL) STRICT;

CREATE TABLE records (
  partition TEXT NOT NULL,
  key TEXT NOT NULL,
  version BLOB NOT NULL,
  value BLOB NOT NULL,
  expires_us INTEGER,
  UNIQUE (partition, key)
) STRICT;
CREATE INDEX records_by_expiry ON records (expires_us) WHERE expires_us IS NOT NULL;

CREATE TABLE rows (
  stream TEXT NOT NULL,
  shard INTEGER NOT NULL,
  at_us INTEGER NOT NULL,
  id BLOB NOT NULL,
  body BLOB NOT NULL,
  PRIMARY KEY (stream, shard, at_us, id)
) STRICT, WITHOUT ROWID;

CREATE TABLE dueline_stream_marks (
  stream TEXT NOT NULL,
  shard INTEGER NOT NULL,
  closed_us INTEGER NOT NULL,
  PRIMARY KEY (stream, shard),
  CHECK (closed_us < 4611686018427387904)
) STRICT, WITHOUT ROWID;
