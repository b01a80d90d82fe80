-- The walbraid schema of a subscriber: from version 1 to version 2.

-- One row a lane that was ever applied: why its transactions waited, for `walbraid explain`. Written
-- by the consumer every few seconds while there is news, and when it ends.
CREATE TABLE walbraid.explained (
    lane_id    integer     PRIMARY KEY REFERENCES walbraid.lanes (id) ON DELETE CASCADE,
    since      timestamptz NOT NULL,
    tally      jsonb       NOT NULL,
    updated_at timestamptz NOT NULL DEFAULT now()
);

COMMENT ON COLUMN walbraid.explained.since IS
    'when the consumer that counts began to apply the lane';

-- One row a lane whose next transactions are to be recorded, for `walbraid dag`: the request, and
-- what the consumer answers.
CREATE TABLE walbraid.recordings (
    lane_id      integer     PRIMARY KEY REFERENCES walbraid.lanes (id) ON DELETE CASCADE,
    request      uuid        NOT NULL,
    transactions integer     NOT NULL CHECK (transactions > 0),
    until        timestamptz NOT NULL,
    began_at     timestamptz,
    recording    jsonb
);

COMMENT ON COLUMN walbraid.recordings.until IS
    'the consumer answers with what it has by then, by this server''s clock';
COMMENT ON COLUMN walbraid.recordings.began_at IS
    'when the consumer began to record';

-- Who may apply lanes may go on to do so.
DO $$
DECLARE
    holder text;
BEGIN
    FOR holder IN
        SELECT CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END
        FROM pg_class c, aclexplode(c.relacl) a
        WHERE c.oid = 'walbraid.lanes'::regclass AND a.privilege_type = 'UPDATE'
          AND a.grantee <> c.relowner
    LOOP
        EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON walbraid.explained, '
                       'walbraid.recordings TO %s', holder);
    END LOOP;
END
$$;

UPDATE walbraid.version SET version = 2, installed = now();
