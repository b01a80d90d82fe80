#!/usr/bin/env python3
"""An independent reader of the log: shares no code with walbraid.

Reads from standard input {"registry": URL, "records": [HEX, ...]}, the values of a lane's records
in order, and writes to standard output one JSON line for each: the envelope, with every row
decoded by its table's own schema. It knows docs/log-format.md and Avro (fastavro), nothing else.

fastavro comes from an environment of its own, made once beside the build.
"""

import base64
import io
import json
import os
import subprocess
import sys
import urllib.request
from pathlib import Path

LIBRARY = "fastavro==1.13.1"
# CRC-64-AVRO: the value of an empty text, which is also the polynomial.
EMPTY = 0xC15D213AA4D7A795


def with_library():
    """Starts this script again in an environment that has the library."""
    environment = Path(__file__).resolve().parents[2] / "target" / "python"
    python = environment / "bin" / "python"
    if not (environment / "complete").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", environment], check=True,
                       stdout=sys.stderr)
        subprocess.run([python, "-m", "pip", "install", "--quiet", LIBRARY], check=True,
                       stdout=sys.stderr)
        (environment / "complete").touch()
    os.execv(python, [python, *sys.argv])


try:
    import fastavro
except ImportError:
    with_library()


def fingerprint(text):
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = (byte >> 1) ^ (EMPTY if byte & 1 else 0)
        table.append(byte)
    value = EMPTY
    for byte in text.encode():
        value = (value >> 8) ^ table[(value ^ byte) & 0xFF]
    return value - (1 << 64) if value >> 63 else value


class Registry:
    """Schemas by id, each asked for once."""

    def __init__(self, url):
        self.url = url
        self.known = {}

    def text(self, number):
        if number not in self.known:
            with urllib.request.urlopen(f"{self.url}/schemas/ids/{number}", timeout=30) as answer:
                self.known[number] = json.load(answer)["schema"]
        return self.known[number]

    def decode(self, number, data):
        schema = fastavro.parse_schema(json.loads(self.text(number)))
        stream = io.BytesIO(data)
        datum = fastavro.schemaless_reader(
            stream, schema, return_record_name=True, return_named_type=True)
        assert stream.read() == b"", "bytes are left over"
        return datum


def read(registry, value):
    """One record: a zero byte, the schema's id, then the envelope."""
    assert value[0] == 0, "not in Confluent's framing"
    envelope = registry.decode(int.from_bytes(value[1:5], "big"), value[5:])
    kind, body = envelope["body"]
    body = dict(body, kind=kind.rpartition(".")[2])
    if "changes" in body:
        body["link"] = envelope["body"][1]["kind"]
        body["changes"] = [change(registry, body["tables"], *each) for each in body["changes"]]
    envelope["body"] = body
    return envelope


def change(registry, tables, kind, fields):
    fields = dict(fields, kind=kind.rpartition(".")[2])
    if isinstance(fields.get("table"), int):
        reference = tables[fields["table"]]
        text = registry.text(reference["schema_id"])
        assert fingerprint(text) == reference["fingerprint"], "the registry gave another schema"
        schema = json.loads(text)
        fields["table"] = f"{schema['pg_schema']}.{schema['pg_table']}"
        if "new" in fields:
            fields["new"] = row(registry, schema, reference, fields["new"])
        old = fields.get("old")
        if old is not None:
            # A union gives the branch's name beside the value.
            old = old[1] if isinstance(old, (tuple, list)) else old
            fields["old"] = dict(old, row=row(registry, schema, reference, old["row"]))
    return fields


def row(registry, schema, reference, data):
    """The row by the columns' own names; floats in hexadecimal, so that each bit is there."""
    datum = registry.decode(reference["schema_id"], data)
    return {field["pg_column"]: column(datum[field["name"]]) for field in schema["fields"]}


def column(value):
    if isinstance(value, float):
        return {"float": value.hex()}
    if isinstance(value, tuple):
        return {"absent": value[1]}
    return value


def plain(value):
    if isinstance(value, bytes):
        return base64.b16encode(value).decode().lower()
    raise TypeError(f"{type(value)} is no JSON")


def main():
    order = json.load(sys.stdin)
    registry = Registry(order["registry"])
    for record in order["records"]:
        print(json.dumps(read(registry, bytes.fromhex(record)), default=plain))


if __name__ == "__main__":
    main()
