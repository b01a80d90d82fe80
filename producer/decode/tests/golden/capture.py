#!/usr/bin/env python3
"""Captures pgoutput's messages of a real server over a fixed scenario.

    capture.py --port PORT --out DIR      (the superuser postgres is trusted on 127.0.0.1)

Runs the scenario in a database of its own on a server of version 14 to 18 and writes, per way of
reading it, VERSION-NAME.bin (the messages: u64 WAL position, u32 length, bytes) and
VERSION-NAME.txt (what the second decoder, second.py, reads in them). Together the files of one
version hold every kind of message that the version sends.
"""

import argparse
import struct
from pathlib import Path

import second
from session import Session, Stream

DATABASE = "golden"
# Decoded changes beyond this size are streamed; 64 kB is the least that the server takes.
SMALL_MEMORY = {"options": "-c logical_decoding_work_mem=64kB"}

TABLES = """
CREATE TYPE mood AS ENUM ('calm', 'wild');
CREATE DOMAIN positive AS int4 CHECK (VALUE > 0);
CREATE TYPE pair AS (a int4, b text);
CREATE TABLE typed (
    id int4 PRIMARY KEY, gone text, b bool, i2 int2, i8 int8, f4 float4, f8 float8, t text,
    raw bytea, n numeric(10, 2), m mood, d positive, p pair, a int4[], j jsonb, at timestamptz,
    r int4range, v varchar(10), c char(4), doubled int4 GENERATED ALWAYS AS (id * 2) STORED);
ALTER TABLE typed DROP COLUMN gone;
CREATE TABLE toasted (id int4 PRIMARY KEY, note text, v int4);
ALTER TABLE toasted ALTER COLUMN note SET STORAGE EXTERNAL;
CREATE TABLE toasted_key (id text PRIMARY KEY, v int4);
ALTER TABLE toasted_key ALTER COLUMN id SET STORAGE EXTERNAL;
CREATE TABLE keyed (a int4 NOT NULL, b int4 NOT NULL, c text);
CREATE UNIQUE INDEX keyed_a_b ON keyed (b, a);
ALTER TABLE keyed REPLICA IDENTITY USING INDEX keyed_a_b;
CREATE TABLE whole (a int4, b text);
ALTER TABLE whole REPLICA IDENTITY FULL;
CREATE TABLE mute (a int4);
ALTER TABLE mute REPLICA IDENTITY NOTHING;
CREATE TABLE parent (id int4 PRIMARY KEY);
CREATE TABLE child (id int4 PRIMARY KEY, parent int4 REFERENCES parent);
CREATE SCHEMA "My Schema";
CREATE TYPE "My Schema"."My ""Type" AS ENUM ('x');
CREATE TABLE "My Schema"."Weird ""T.able" (
    "Ünï Cødé" int4 PRIMARY KEY, "select" text, "a.b" "My Schema"."My ""Type");
CREATE TABLE columnless ();
CREATE TABLE streamed (id int4 PRIMARY KEY, m mood);
CREATE TABLE unpublished (a int4, b text);
CREATE PUBLICATION plain FOR TABLE typed, toasted, toasted_key, keyed, whole, mute, parent, child,
    "My Schema"."Weird ""T.able", columnless;
CREATE PUBLICATION large FOR TABLE streamed;
"""

PLAIN = """
INSERT INTO typed VALUES (1, true, -2, 9007199254740993, 'NaN', '-0', 'e\u0308 | "q" \\',
    '\\xdeadbeef', 12.50, 'wild', 7, '(1,"a,b")', '{1,NULL,3}', '{"k": [1, null]}',
    '2026-01-02 03:04:05.678901+00', '[1,5)', 'var', 'c');
INSERT INTO typed (id, f4, f8, t, raw) VALUES (2, 'Infinity', 1.7976931348623157e308, '', '');
UPDATE typed SET b = false WHERE id = 1;
UPDATE typed SET id = 3 WHERE id = 2;
DELETE FROM typed WHERE id = 3;
INSERT INTO toasted VALUES (1, repeat('n', 2100), 1);
UPDATE toasted SET v = 2;
INSERT INTO toasted_key VALUES (repeat('k', 2100), 1);
UPDATE toasted_key SET v = 2;
INSERT INTO keyed VALUES (1, 2, 'three');
UPDATE keyed SET c = NULL;
UPDATE keyed SET a = 4;
DELETE FROM keyed;
INSERT INTO whole VALUES (1, NULL), (1, NULL), (NULL, 'b');
UPDATE whole SET b = 'c' WHERE a IS NULL;
DELETE FROM whole WHERE a = 1;
INSERT INTO mute VALUES (1);
INSERT INTO columnless DEFAULT VALUES;
INSERT INTO "My Schema"."Weird ""T.able" VALUES (1, 'from', 'x');
BEGIN;
INSERT INTO parent VALUES (1);
SAVEPOINT a;
INSERT INTO parent VALUES (2);
ROLLBACK TO a;
INSERT INTO child VALUES (1, 1);
SELECT pg_logical_emit_message(true, 'inside', 'transactional');
COMMIT;
TRUNCATE parent CASCADE;
TRUNCATE parent, child RESTART IDENTITY;
TRUNCATE mute;
SELECT pg_logical_emit_message(false, 'outside', '\\x00ff'::bytea);
BEGIN;
INSERT INTO mute VALUES (2);
SELECT pg_logical_emit_message(false, 'before the commit record', '');
COMMIT;
SELECT pg_logical_emit_message(true, 'alone', '');
INSERT INTO unpublished VALUES (1, 'nothing that is published');
ALTER TABLE whole ADD COLUMN c mood;
INSERT INTO whole VALUES (2, 'x', 'calm');
ALTER TABLE whole ALTER COLUMN b TYPE varchar(9);
INSERT INTO whole VALUES (3, 'y', 'wild');
SELECT pg_replication_origin_create('elsewhere');
SELECT pg_replication_origin_session_setup('elsewhere');
BEGIN;
SELECT pg_replication_origin_xact_setup('0/ABCDEF', '2020-02-03 04:05:06+00');
INSERT INTO whole VALUES (4, 'far away', NULL);
COMMIT;
SELECT pg_replication_origin_session_reset();
SELECT pg_replication_origin_drop('elsewhere');
"""

FILL = "INSERT INTO unpublished SELECT i, repeat('x', 100) FROM generate_series(1, 1000) i"


def statements(script):
    """The statements of a script that has no semicolon inside of one."""
    return [statement.strip() for statement in script.split(";") if statement.strip()]


def readers(version):
    """By name: the options of the stream and whether its slot decodes two-phase transactions."""
    newest = {14: 2, 15: 3}.get(version, 4)
    plain = {"publication_names": "plain", "messages": "true"}
    large = {"publication_names": "large", "messages": "true"}
    yield "plain", {"proto_version": newest, **plain}, False
    yield "binary", {"proto_version": newest, "binary": "true", **plain}, False
    yield "streamed", {"proto_version": 2, "streaming": "on", **large}, False
    if version >= 16:
        yield "parallel", {"proto_version": 4, "streaming": "parallel", **large}, False
    if version >= 15:
        yield "two-phase", {"proto_version": 3, "streaming": "on", "two_phase": "on", **large}, True


class Scenario:
    """Runs the scenario while its streams are being read."""

    def __init__(self, port):
        maintenance = Session(port, "postgres")
        maintenance.query(f"DROP DATABASE IF EXISTS {DATABASE}")
        maintenance.query(f"CREATE DATABASE {DATABASE} TEMPLATE template0 ENCODING 'UTF8'")
        maintenance.query("SELECT pg_replication_origin_drop(roname) FROM pg_replication_origin "
                          "WHERE roname = 'elsewhere'")
        self.version = int(maintenance.query("SHOW server_version_num")[0][0]) // 10000
        maintenance.close()
        self.port = port
        self.session = Session(port, DATABASE)
        self.other = Session(port, DATABASE)
        self.streams = {}

    def run(self):
        for statement in statements(TABLES):
            self.session.query(statement)
        for name, options, two_phase in readers(self.version):
            slot = f"golden_{name.replace('-', '_')}"
            arguments = f"'{slot}', 'pgoutput'" + (", false, true" if two_phase else "")
            self.session.query(f"SELECT pg_create_logical_replication_slot({arguments})")
            self.streams[name] = Stream(self.port, DATABASE, slot, options, **SMALL_MEMORY)
        for statement in statements(PLAIN):
            self.session.query(statement)
        self.streamed_commit()
        self.streamed_abort()
        if self.version >= 15:
            self.two_phase()
        self.session.query("SELECT pg_logical_emit_message(false, 'end of scenario', '')")
        for stream in self.streams.values():
            stream.read_until(b"M", b"end of scenario")

    def flush(self, row, tag=b"E"):
        """Waits until the open transaction was sent up to here, its rows being too many to hold."""
        self.session.query(f"INSERT INTO streamed VALUES ({row}, 'calm')")
        self.session.query(FILL)
        # Only flushed WAL is decoded; another session's commit flushes it.
        self.other.query("SELECT pg_logical_emit_message(true, 'flush', '')")
        for name in ("streamed", "parallel", "two-phase"):
            if name in self.streams:
                self.streams[name].read_until(tag)

    def streamed_commit(self):
        self.session.query("BEGIN")
        self.flush(1)
        self.session.query("SAVEPOINT a")
        self.flush(2)
        self.session.query("ROLLBACK TO a")
        self.session.query("UPDATE streamed SET m = 'wild'")
        self.session.query("UPDATE streamed SET id = 3")
        self.session.query("SELECT pg_logical_emit_message(true, 'in a stream', 'content')")
        self.flush(4)
        self.session.query("DELETE FROM streamed WHERE id = 3")
        self.session.query("TRUNCATE streamed")
        self.flush(5)
        self.session.query("COMMIT")

    def streamed_abort(self):
        self.session.query("BEGIN")
        self.flush(6)
        self.session.query("ROLLBACK")

    def two_phase(self):
        for row, end in ((11, "COMMIT"), (12, "ROLLBACK")):
            self.session.query("BEGIN")
            self.session.query(f"INSERT INTO streamed VALUES ({row}, 'wild')")
            self.session.query(f"PREPARE TRANSACTION 'gid {row}'")
            self.session.query(f"{end} PREPARED 'gid {row}'")
        self.session.query("BEGIN")
        self.session.query("INSERT INTO unpublished VALUES (1, 'an empty prepared transaction')")
        self.session.query("PREPARE TRANSACTION 'gid of nothing'")
        self.session.query("COMMIT PREPARED 'gid of nothing'")
        self.session.query("BEGIN")
        self.flush(13)
        self.session.query("PREPARE TRANSACTION 'gid of a stream'")
        self.session.query("COMMIT PREPARED 'gid of a stream'")

    def close(self):
        for name, stream in self.streams.items():
            stream.session.socket.close()
            slot = f"golden_{name.replace('-', '_')}"
            self.other.query(
                "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots "
                f"WHERE slot_name = '{slot}' AND active_pid IS NOT NULL")
            while self.other.query("SELECT 1 FROM pg_replication_slots "
                                   f"WHERE slot_name = '{slot}' AND active"):
                pass
            self.other.query(f"SELECT pg_drop_replication_slot('{slot}')")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    options = parser.parse_args()
    scenario = Scenario(options.port)
    try:
        scenario.run()
    finally:
        scenario.close()
    for name, stream in scenario.streams.items():
        path = options.out / f"{scenario.version}-{name}.bin"
        with open(path, "wb") as file:
            for start, message in stream.messages:
                file.write(struct.pack("!QI", start, len(message)) + message)
        path.with_suffix(".txt").write_text(second.describe(path), encoding="utf-8")
        print(f"{path.name}: {len(stream.messages)} messages, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
