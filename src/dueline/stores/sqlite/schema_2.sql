-- What schema version 2 adds. Run once, in one transaction, on a file of version 1.
--
-- dueline_stream_marks  the mark of a stream's shard: rows at or below it never change. It only
--                       grows. No row reads as -1.

CREATE TABLE dueline_stream_marks (
  stream TEXT NOT NULL,
  shard INTEGER NOT NULL,
  closed_us INTEGER NOT NULL,
  PRIMARY KEY (stream, shard),
  CHECK (closed_us < 4611686018427387904)
) STRICT, WITHOUT ROWID;
