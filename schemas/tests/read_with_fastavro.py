#!/usr/bin/env python3
"""Reads walbraid's log with fastavro: an independent reader, after docs/log-format.md alone.

As a module: split_frame, Envelope, rows, fingerprint, Chain.
As a program: read_with_fastavro.py DIRECTORY checks the samples that the test
`samples_for_other_readers` wrote there, and exits 0 only if every one reads as it should.
"""

import io
import json
import pathlib
import struct
import sys

import fastavro


def lsn(number):
    """A pg_lsn's text."""
    return f"{number >> 32:X}/{number & 0xFFFFFFFF:X}"


def split_frame(value):
    """Schema id and Avro datum of a record's value."""
    if len(value) < 5 or value[0] != 0:
        raise ValueError("not in Confluent's framing")
    return struct.unpack(">i", value[1:5])[0], value[5:]


def read_datum(schema, datum):
    """The datum's value; every byte must be used. Union branches come as (name, value)."""
    stream = io.BytesIO(datum)
    value = fastavro.schemaless_reader(
        stream, schema, return_record_name=True, return_named_type=True
    )
    if stream.read(1):
        raise ValueError("bytes are left behind the datum")
    return value


CRC_EMPTY = 0xC15D213AA4D7A795


def crc_table():
    table = []
    for value in range(256):
        for _ in range(8):
            value = (value >> 1) ^ (CRC_EMPTY if value & 1 else 0)
        table.append(value)
    return table


CRC_TABLE = crc_table()


def fingerprint(schema_text):
    """CRC-64-AVRO of a table's schema, whatever way a registry has printed it."""
    compact = json.dumps(json.loads(schema_text), separators=(",", ":"), ensure_ascii=False)
    crc = CRC_EMPTY
    for byte in compact.encode():
        crc = (crc >> 8) ^ CRC_TABLE[(crc ^ byte) & 0xFF]
    return crc - (1 << 64) if crc >> 63 else crc


class Schemas:
    """Schemas by id. `text_of` gives a schema's text, from a registry or a directory."""

    def __init__(self, text_of):
        self.text_of = text_of
        self.parsed = {}

    def get(self, schema_id):
        if schema_id not in self.parsed:
            text = self.text_of(schema_id)
            schema = fastavro.parse_schema(json.loads(text), named_schemas={})
            self.parsed[schema_id] = (json.loads(text), schema, fingerprint(text))
        return self.parsed[schema_id]


class Envelope:
    """A record's value."""

    def __init__(self, value, schemas):
        schema_id, datum = split_frame(value)
        self.schemas = schemas
        self.schema = schemas.get(schema_id)[1]
        self.fields = read_datum(self.schema, datum)
        name, self.body = self.fields["body"]
        self.kind = name.removeprefix("walbraid.")

    def __getattr__(self, name):
        return self.fields[name]

    def changes(self):
        """The part's changes, with their rows."""
        return [self.change(name, change) for name, change in self.body["changes"]]

    def change(self, name, change):
        kind = name.removeprefix("walbraid.")
        told = {"kind": kind}
        for key in ("prefix", "transactional", "cascade", "restart_identity", "tables", "lsn"):
            if key in change:
                told[key] = change[key]
        if "content" in change:
            told["content"] = change["content"].hex()
        if kind in ("Insert", "Update", "Delete"):
            table = self.body["tables"][change["table"]]
            old = change.get("old")
            if isinstance(old, tuple):
                old = old[1]
            if old is not None:
                told["old_kind"] = old["kind"]
                told["old"] = self.row(table, old["row"])
            if "new" in change:
                told["new"] = self.row(table, change["new"])
        return told

    def row(self, table, row):
        """A row as {column's PostgreSQL name: value}."""
        text, schema, found = self.schemas.get(table["schema_id"])
        if found != table["fingerprint"]:
            raise ValueError(f"schema id {table['schema_id']} is another schema in this registry")
        values = read_datum(schema, row)
        return {
            field["pg_column"]: tell(field["type"][1], values[field["name"]])
            for field in text["fields"]
        }


def tell(avro_type, value):
    """A column's value so that JSON can hold it and nothing is lost."""
    if isinstance(value, tuple):
        return {"absent": value[1]}
    if value is None or avro_type in ("boolean", "int", "long"):
        return value
    if avro_type == "float":
        return {"float4": struct.pack(">f", value).hex()}
    if avro_type == "double":
        return {"float8": struct.pack(">d", value).hex()}
    if avro_type == "bytes":
        return {"bytes": value.hex()}
    return value


class Break(Exception):
    """The lane cannot be read on."""


class Chain:
    """The chain's rule, for a reader that starts at the log's first record with an empty
    subscriber. Gives (end LSN, parts) for each link."""

    def __init__(self, incarnation, start):
        self.incarnation = incarnation
        self.end = start  # P
        self.covered = start  # K
        self.end_claim, self.end_options = -1, None
        self.claim, self.options, self.confirmed = -1, None, None
        self.view_changed = True
        self.parts = []

    def offer(self, offset, record):
        writer = offset if record.kind == "Claim" else record.claim_offset
        if writer < self.claim:
            return None
        if record.incarnation != self.incarnation:
            raise Break("another incarnation")
        if record.kind == "Claim":
            if record.body["confirmed_lsn"] > self.covered:
                raise Break("a claim above the covered LSN")
            self.claim, self.options = offset, record.options_hash
            self.confirmed = record.body["confirmed_lsn"]
            self.view_changed |= self.options != self.end_options
            self.parts = []
            return None
        if writer > self.claim:
            raise Break("a claim that is not in the log")
        if record.kind == "Heartbeat":
            self.heartbeat(record)
            return None
        if record.kind == "Part":
            return self.part(record)
        return None

    def explained(self, record):
        if record.previous_end_lsn > self.covered:
            raise Break("a gap")
        if record.previous_end_lsn < self.end and (
            self.claim == self.end_claim
            or not (self.view_changed or self.confirmed >= self.end)
        ):
            raise Break("a divergence")

    def heartbeat(self, record):
        if record.end_lsn <= self.covered:
            return
        self.explained(record)
        if self.parts and record.end_lsn > self.parts[0].body["commit_lsn"]:
            raise Break("a heartbeat over an open run")
        self.covered = record.end_lsn

    def part(self, record):
        part = record.body
        if part["commit_lsn"] < self.covered:
            return None
        if self.parts and self.parts[0].body["commit_lsn"] != part["commit_lsn"]:
            raise Break("a link inside another")
        if part["number"] == 0:
            self.explained(record)
            self.parts = []
        elif part["number"] < len(self.parts):
            return None
        elif part["number"] > len(self.parts):
            raise Break("a part is missing")
        self.parts.append(record)
        if not part["last"]:
            return None
        parts, self.parts = self.parts, []
        self.end = self.covered = record.end_lsn
        self.end_claim, self.end_options = self.claim, self.options
        self.view_changed = False
        return self.end, parts


def describe(record):
    told = {
        "kind": record.kind,
        "incarnation": record.incarnation.hex(),
        "claim_offset": record.claim_offset,
        "options_hash": record.options_hash,
        "end_lsn": lsn(record.end_lsn),
        "previous_end_lsn": lsn(record.previous_end_lsn),
    }
    if record.kind == "Part":
        told["xid"] = record.body["xid"]
        told["commit_lsn"] = lsn(record.body["commit_lsn"])
        told["changes"] = record.changes()
    return told


def read_lane(path):
    """Offsets and values of a lane's sample file."""
    content = path.read_bytes()
    while content:
        offset, length = struct.unpack(">qi", content[:12])
        yield offset, content[12 : 12 + length]
        content = content[12 + length :]


def check_samples(directory):
    schemas = Schemas(lambda number: (directory / "schemas" / f"{number}.avsc").read_text())
    failures = 0
    records = sorted((directory / "records").glob("*.bin"))
    for path in records:
        found = describe(Envelope(path.read_bytes(), schemas))
        expected = json.loads(path.with_suffix(".json").read_text())
        if found != expected:
            failures += 1
            print(f"{path}: found {found}\nexpected {expected}", file=sys.stderr)
    lanes = sorted((directory / "lanes").glob("*.bin"))
    for path in lanes:
        expected = json.loads(path.with_suffix(".json").read_text())
        chain = Chain(bytes.fromhex(expected["incarnation"]), expected["start"])
        links = []
        for offset, value in read_lane(path):
            link = chain.offer(offset, Envelope(value, schemas))
            if link:
                rows = sum(len(part.body["tables"]) for part in link[1])
                links.append([link[0], rows])
        if links != expected["links"] or chain.covered != expected["covered"]:
            failures += 1
            print(f"{path}: found {links}\nexpected {expected}", file=sys.stderr)
    print(f"{len(records)} records and {len(lanes)} lanes read, {failures} failures")
    return 0 if records and lanes and not failures else 1


if __name__ == "__main__":
    sys.exit(check_samples(pathlib.Path(sys.argv[1])))
