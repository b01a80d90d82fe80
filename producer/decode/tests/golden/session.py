"""A PostgreSQL session in the simple protocol, and a replication stream on one; stdlib only."""

import socket
import struct


class ServerError(Exception):
    """What the server said."""


class Session:
    """One connection to a server that trusts it."""

    def __init__(self, port, database, user="postgres", **parameters):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        self.buffer = b""
        words = {"user": user, "database": database, "client_encoding": "UTF8",
                 "extra_float_digits": "3", "bytea_output": "hex", "DateStyle": "ISO",
                 "IntervalStyle": "postgres", "TimeZone": "UTC", **parameters}
        body = struct.pack("!I", 196608)
        for key, value in words.items():
            body += key.encode() + b"\0" + value.encode() + b"\0"
        body += b"\0"
        self.socket.sendall(struct.pack("!I", len(body) + 4) + body)
        self._until_ready()

    def close(self):
        self.socket.sendall(b"X\0\0\0\4")
        self.socket.close()

    def query(self, sql):
        """Runs `sql`; the rows of all its results, as lists of text."""
        self.send(b"Q", sql.encode() + b"\0")
        return self._until_ready()

    def send(self, kind, body):
        self.socket.sendall(kind + struct.pack("!I", len(body) + 4) + body)

    def receive(self):
        """The next message: its kind and its body."""
        header = self._take(5)
        return header[:1], self._take(struct.unpack("!I", header[1:])[0] - 4)

    def _take(self, length):
        while len(self.buffer) < length:
            data = self.socket.recv(65536)
            if not data:
                raise ServerError("the server closed the connection")
            self.buffer += data
        taken, self.buffer = self.buffer[:length], self.buffer[length:]
        return taken

    def _until_ready(self):
        rows, error = [], None
        while True:
            kind, body = self.receive()
            if kind == b"D":
                rows.append(_row(body))
            elif kind == b"E":
                error = _error(body)
                if self.buffer == b"" and error.startswith("FATAL"):
                    raise ServerError(error)
            elif kind == b"Z":
                if error:
                    raise ServerError(error)
                return rows


class Stream:
    """Messages of one slot, as the walsender sends them; nothing is ever confirmed."""

    def __init__(self, port, database, slot, arguments, **parameters):
        self.session = Session(port, database, replication="database", **parameters)
        self.messages = []
        words = ", ".join(f"{key} '{value}'" for key, value in arguments.items())
        self.session.send(b"Q", f"START_REPLICATION SLOT {slot} LOGICAL 0/0 ({words})\0".encode())
        while True:
            kind, body = self.session.receive()
            if kind == b"E":
                raise ServerError(_error(body))
            if kind == b"W":
                return

    def read_until(self, tag, content=b""):
        """Reads up to a message that starts with `tag` and holds `content`."""
        while True:
            kind, body = self.session.receive()
            if kind == b"E":
                raise ServerError(_error(body))
            if kind != b"d":
                continue
            if body[:1] == b"k":
                if body[17:18] == b"\1":
                    self.session.send(b"d", b"r" + bytes(33))
                continue
            start, = struct.unpack("!Q", body[1:9])
            message = body[25:]
            self.messages.append((start, message))
            if message.startswith(tag) and content in message:
                return


def _row(body):
    count, = struct.unpack("!H", body[:2])
    position, row = 2, []
    for _ in range(count):
        length, = struct.unpack("!i", body[position:position + 4])
        position += 4
        if length < 0:
            row.append(None)
        else:
            row.append(body[position:position + length].decode())
            position += length
    return row


def _error(body):
    fields = {part[:1]: part[1:].decode() for part in body.split(b"\0") if part}
    return f"{fields.get(b'S')}: {fields.get(b'M')}"
