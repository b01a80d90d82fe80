-- The walbraid schema of a subscriber, version 1.
--
-- Owned by whoever runs `walbraid setup`; read and written by the role that `walbraid consume`
-- connects as. Nothing outside this schema is changed, except for replication origins, whose names
-- begin with walbraid_ and the oid of this database.

CREATE SCHEMA walbraid;

COMMENT ON SCHEMA walbraid IS 'walbraid: what this subscriber knows of its streams';

-- What is installed, so that a newer walbraid upgrades and an older one refuses.
CREATE TABLE walbraid.version (
    only_row  boolean     PRIMARY KEY DEFAULT true CHECK (only_row),
    version   integer     NOT NULL,
    installed timestamptz NOT NULL DEFAULT now()
);

-- One row a stream: all that one slot of a publisher delivers. A slot created anew has a new
-- incarnation, and the log of the old one is not the log of the new one.
CREATE TABLE walbraid.streams (
    stream                      text        PRIMARY KEY,
    incarnation                 uuid        NOT NULL,
    state                       text        NOT NULL CHECK (state IN ('creating', 'ready')),
    publisher_system_identifier text        NOT NULL,
    publisher_database          text        NOT NULL,
    slot                        text        NOT NULL,
    topic                       text        NOT NULL,
    topic_made                  boolean     NOT NULL DEFAULT false,
    start_lsn                   pg_lsn      NOT NULL,
    created_at                  timestamptz NOT NULL DEFAULT now()
);

COMMENT ON COLUMN walbraid.streams.state IS
    'creating from before the slot is made until after, so that a slot made by a setup that did not '
    'finish is known for ours';
COMMENT ON COLUMN walbraid.streams.topic_made IS
    'the topic was made by walbraid setup, so that walbraid teardown removes it';
COMMENT ON COLUMN walbraid.streams.start_lsn IS
    'the publisher''s WAL position below which nothing is applied: progress while no origin has any';

-- One row a lane (a Kafka partition of the stream's topic):
--   epoch, owner   the fence: a new owner raises the epoch before it reads progress;
--   the rest       what `walbraid status` shows, written about once a second.
-- The id is the second half of the lane's advisory lock.
CREATE TABLE walbraid.lanes (
    id                   integer     GENERATED ALWAYS AS IDENTITY UNIQUE,
    stream               text        NOT NULL REFERENCES walbraid.streams ON DELETE CASCADE,
    lane                 integer     NOT NULL CHECK (lane >= 0),
    epoch                bigint      NOT NULL DEFAULT 0,
    owner                uuid,
    state                text        NOT NULL DEFAULT 'idle',
    since                timestamptz NOT NULL DEFAULT now(),
    reason               text,
    stop_kind            text,
    applied_lsn          pg_lsn,
    flushed_lsn          pg_lsn,
    quiet_until_lsn      pg_lsn,
    applied_commit_time  timestamptz,
    transactions_applied bigint      NOT NULL DEFAULT 0,
    member               text,
    updated_at           timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (stream, lane)
) WITH (fillfactor = 50);

COMMENT ON COLUMN walbraid.lanes.flushed_lsn IS
    'all publisher transactions that end at or below it are durable here';
COMMENT ON COLUMN walbraid.lanes.quiet_until_lsn IS
    'the publisher has no transaction of this lane between flushed_lsn and this position';

-- The progress of the lanes: each target transaction adds the row that says where it ends, so that
-- rows and progress stand or fall together. The newest row counts; older ones are deleted once a
-- newer one is durable. Rows are added and never updated, and there is no index, because a row that
-- is updated with each commit gets slow under a long snapshot.
CREATE TABLE walbraid.progress (
    lane_id      integer NOT NULL,
    end_lsn      pg_lsn  NOT NULL,
    claim_offset bigint  NOT NULL,
    options_hash bigint
) WITH (vacuum_truncate = off);

-- So that a publication of all tables does not refuse the deletes.
ALTER TABLE walbraid.progress REPLICA IDENTITY FULL;

COMMENT ON COLUMN walbraid.progress.end_lsn IS
    'end LSN, on the publisher, of the newest transaction that was applied with this row';
COMMENT ON COLUMN walbraid.progress.claim_offset IS
    'offset of the claim under which that transaction was written';

INSERT INTO walbraid.version (version) VALUES (1);
