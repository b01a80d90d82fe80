#!/usr/bin/env python3
"""A second decoder of pgoutput, written from the protocol's documentation and not from the first.

    second.py FILE.bin      one line per message on standard output

It shares nothing with the decoder under test but the form of these lines, so what both read alike
is unlikely to be wrong in both.
"""

import struct
import sys
from pathlib import Path

EPOCH_US = 946_684_800_000_000
SHOWN = 60
NAMES = {
    "B": "Begin", "C": "Commit", "O": "Origin", "R": "Relation", "Y": "Type", "I": "Insert",
    "U": "Update", "D": "Delete", "T": "Truncate", "M": "Message", "S": "Stream Start",
    "E": "Stream Stop", "c": "Stream Commit", "A": "Stream Abort", "b": "Begin Prepare",
    "P": "Prepare", "p": "Stream Prepare", "K": "Commit Prepared", "r": "Rollback Prepared",
}


class Reader:
    def __init__(self, data):
        self.data = data
        self.at = 0

    def number(self, form):
        value, = struct.unpack_from("!" + form, self.data, self.at)
        self.at += struct.calcsize("!" + form)
        return value

    def take(self, length):
        if length < 0 or self.at + length > len(self.data):
            raise ValueError("a length beyond the message")
        self.at += length
        return self.data[self.at - length:self.at]

    def text(self):
        end = self.data.index(0, self.at)
        value = self.data[self.at:end]
        self.at = end + 1
        return f'"{escape(value)}"'

    def lsn(self):
        value = self.number("Q")
        return f"{value >> 32:X}/{value & 0xFFFFFFFF:X}"

    def time(self):
        return self.number("q") + EPOCH_US

    def char(self):
        return chr(self.number("B"))


def escape(data):
    special = {0x09: "\\t", 0x0A: "\\n", 0x0D: "\\r", 0x22: '\\"', 0x27: "\\'", 0x5C: "\\\\"}
    return "".join(
        special.get(byte) or (chr(byte) if 0x20 <= byte < 0x7F else f"\\x{byte:02x}")
        for byte in data)


def value(data):
    if len(data) <= SHOWN:
        return f'"{escape(data)}"'
    return f'"{escape(data[:SHOWN])}"+{len(data) - SHOWN}'


def row(reader):
    columns = []
    for _ in range(reader.number("H")):
        kind = reader.char()
        if kind in "tb":
            kind += value(reader.take(reader.number("i")))
        columns.append(kind)
    return "(" + " ".join(columns) + ")"


def relation(reader):
    words = [f"oid={reader.number('I')}", f"name={reader.text()}.{reader.text()}",
             f"identity={reader.char()}"]
    for _ in range(reader.number("H")):
        key = "key " if reader.number("B") & 1 else ""
        words.append(f"[{key}{reader.text()} type={reader.number('I')} "
                     f"modifier={reader.number('i')}]")
    return words


def rows(reader, tag):
    words = [f"relation={reader.number('I')}"]
    kind = reader.char()
    if kind in "KO":
        words.append(f"{'key' if kind == 'K' else 'old'}={row(reader)}")
        if tag == "U":
            kind = reader.char()
    if kind == "N":
        words.append(f"new={row(reader)}")
    return words


def prepare(reader):
    return [f"prepare_lsn={reader.lsn()}", f"end_lsn={reader.lsn()}",
            f"prepare_time_us={reader.time()}", f"xid={reader.number('I')}",
            f"gid={reader.text()}"]


def body(tag, reader, in_stream, parallel):
    words = []
    if in_stream and tag in "RYIUDTM":
        words.append(f"xid={reader.number('I')}")
    match tag:
        case "B":
            words += [f"commit_lsn={reader.lsn()}", f"commit_time_us={reader.time()}",
                      f"xid={reader.number('I')}"]
        case "C" | "c":
            if tag == "c":
                words.append(f"xid={reader.number('I')}")
            reader.number("B")
            words += [f"commit_lsn={reader.lsn()}", f"end_lsn={reader.lsn()}",
                      f"commit_time_us={reader.time()}"]
        case "O":
            words += [f"commit_lsn={reader.lsn()}", f"name={reader.text()}"]
        case "R":
            words += relation(reader)
        case "Y":
            words += [f"oid={reader.number('I')}", f"name={reader.text()}.{reader.text()}"]
        case "I" | "U" | "D":
            words += rows(reader, tag)
        case "T":
            count, flags = reader.number("I"), reader.number("B")
            words += [f"cascade={flags & 1}", f"restart_identity={flags >> 1 & 1}"]
            words += [f"relation={reader.number('I')}" for _ in range(count)]
        case "M":
            words += [f"transactional={reader.number('B')}", f"lsn={reader.lsn()}",
                      f"prefix={reader.text()}",
                      f"content={value(reader.take(reader.number('I')))}"]
        case "S":
            words += [f"xid={reader.number('I')}", f"first_segment={reader.number('B')}"]
        case "E":
            pass
        case "A":
            words += [f"xid={reader.number('I')}", f"subxid={reader.number('I')}"]
            if parallel:
                words += [f"abort_lsn={reader.lsn()}", f"abort_time_us={reader.time()}"]
        case "b" | "P" | "p":
            if tag != "b":
                reader.number("B")
            words += prepare(reader)
        case "K":
            reader.number("B")
            words += [f"commit_lsn={reader.lsn()}", f"end_lsn={reader.lsn()}",
                      f"commit_time_us={reader.time()}", f"xid={reader.number('I')}",
                      f"gid={reader.text()}"]
        case "r":
            reader.number("B")
            words += [f"prepare_end_lsn={reader.lsn()}", f"rollback_end_lsn={reader.lsn()}",
                      f"prepare_time_us={reader.time()}", f"rollback_time_us={reader.time()}",
                      f"xid={reader.number('I')}", f"gid={reader.text()}"]
        case _:
            raise ValueError(f"unknown message {tag}")
    return words


def describe(path):
    """One line for each message of a captured file."""
    data = Reader(Path(path).read_bytes())
    parallel = "parallel" in Path(path).name
    in_stream = False
    lines = []
    while data.at < len(data.data):
        start = data.lsn()
        message = Reader(data.take(data.number("I")))
        tag = message.char()
        words = body(tag, message, in_stream, parallel)
        if message.at != len(message.data):
            raise ValueError(f"{NAMES[tag]} at {start} has bytes left over")
        in_stream = tag == "S" or (in_stream and tag != "E")
        lines.append(" ".join([start, NAMES[tag], *words]) + "\n")
    return "".join(lines)


if __name__ == "__main__":
    sys.stdout.write(describe(sys.argv[1]))
