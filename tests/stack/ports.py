"""Listening ports for a stack: below the ephemeral range, kept for as long as the stack is there.

A port of the ephemeral range could be taken by any outgoing connection while its server is down
(or even connect to itself). Ports are handed out in blocks. A block belongs to the stack whose
directory is written in the file named after it, in a folder shared by all stacks of the machine
and locked while it is looked at; so two stacks that start side by side never choose the same one,
and a stack whose servers are down keeps its own. A block is free again when its stack is gone.
"""

import fcntl
import json
import os
import socket
import tempfile
from contextlib import contextmanager
from pathlib import Path

from .report import Failure

NAMES = ("publisher", "subscriber", "kafka", "kafka_controller", "registry")
BLOCK = 8
BLOCKS = 1000


def _range():
    with open("/proc/sys/net/ipv4/ip_local_port_range", encoding="ascii") as file:
        ephemeral_min, ephemeral_max = map(int, file.read().split())
    below = max(1024, ephemeral_min - BLOCK * BLOCKS)
    if ephemeral_min - below >= BLOCK:
        return range(below, ephemeral_min - BLOCK + 1, BLOCK)
    if 65536 - ephemeral_max > BLOCK:
        return range(ephemeral_max + 1, 65536 - BLOCK, BLOCK)
    raise Failure("every port is ephemeral on this machine: narrow ip_local_port_range")


@contextmanager
def _locked_folder():
    folder = Path(tempfile.gettempdir()) / "walbraid-ports"
    try:
        folder.mkdir()
        folder.chmod(0o1777)
    except FileExistsError:
        pass
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield folder
    finally:
        os.close(handle)


def _owner_is_there(claim, base):
    """Whether the stack named in the file `claim` still stands on this block."""
    try:
        state = json.loads((Path(claim.read_text().strip()) / "stack.json").read_text())
        return state["ports"][NAMES[0]] == base
    except (OSError, ValueError, KeyError):
        return False


def _free(port):
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def choose(stack):
    """Gives `stack` its ports and saves it, before another stack can look."""
    with _locked_folder() as folder:
        for base in _range():
            claim = folder / str(base)
            if claim.exists() and _owner_is_there(claim, base):
                continue
            if not all(_free(base + offset) for offset in range(len(NAMES))):
                continue
            try:
                claim.unlink(missing_ok=True)
                claim.write_text(f"{stack.directory}\n")
            except PermissionError:
                continue
            stack.ports = {name: base + offset for offset, name in enumerate(NAMES)}
            stack.save()
            return
    raise Failure("no free block of ports; bin/stack down --remove ends stacks not needed any more")


def release(stack):
    """Gives the block back."""
    with _locked_folder() as folder:
        try:
            (folder / str(stack.ports[NAMES[0]])).unlink(missing_ok=True)
        except PermissionError:
            pass
