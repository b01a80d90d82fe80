"""Where a stack's files are, and what is remembered of it.

A stack is one directory D. `D/stack.json` holds what must not change over restarts: versions,
ports and the system user of the PostgreSQL servers. Everything else can be derived from it.

    D/stack.json    D/lock          D/NAME.pid      D/NAME.log
    D/tls/          a certificate authority, a server's and a client's certificate
    D/home/         data of the servers; a link where their system user cannot reach D
"""

import fcntl
import hashlib
import json
import os
import shutil
from contextlib import contextmanager
from pathlib import Path

from .report import Failure

SERVERS = ("publisher", "subscriber", "kafka", "registry")
# Where servers live that run as a system user which cannot reach the stack's directory.
SYSTEM_HOME = Path("/var/lib/walbraid")


def cache():
    """Downloads, shared by all stacks of this user."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "walbraid"


def reachable(path, uid):
    """Whether a user who owns nothing on the way may walk down to `path`."""
    path = Path(path).resolve()
    for folder in (path, *path.parents):
        status = folder.stat()
        if not (status.st_mode & 0o001 or (status.st_uid == uid and status.st_mode & 0o100)):
            return False
    return True


@contextmanager
def held(path):
    """Holds an exclusive lock on the file `path`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a", encoding="ascii") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


class Stack:
    """One stack's directory and what `stack.json` says."""

    def __init__(self, directory):
        self.directory = Path(directory).resolve()
        self.versions = {}
        self.ports = {}

    @property
    def state_file(self):
        return self.directory / "stack.json"

    @property
    def home(self):
        return (self.directory / "home").resolve()

    def log(self, name):
        return self.directory / f"{name}.log"

    def pid_file(self, name):
        return self.directory / f"{name}.pid"

    def exists(self):
        return self.state_file.exists()

    def load(self):
        """Reads stack.json; a stack that is not there is a failure."""
        if not self.exists():
            raise Failure(f"there is no stack in {self.directory}; bin/stack up makes one")
        state = json.loads(self.state_file.read_text(encoding="utf-8"))
        self.versions, self.ports = state["versions"], state["ports"]
        return self

    def save(self):
        state = {"versions": self.versions, "ports": self.ports}
        part = self.state_file.with_suffix(".part")
        part.write_text(json.dumps(state, indent=2) + "\n", encoding="utf-8")
        part.replace(self.state_file)

    def make_home(self, uid):
        """Makes `home`, within reach of the servers' user `uid`."""
        # The directory is the stack's own (mktemp makes it 0700): others may pass through it.
        self.directory.chmod(self.directory.stat().st_mode | 0o111)
        link = self.directory / "home"
        if link.exists():
            return
        if uid == os.geteuid() or reachable(self.directory, uid):
            link.mkdir()
            return
        name = hashlib.sha256(str(self.directory).encode()).hexdigest()[:16]
        target = SYSTEM_HOME / name
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        link.unlink(missing_ok=True)
        link.symlink_to(target)

    def remove(self):
        """Removes everything the stack has on disk."""
        shutil.rmtree(self.home, ignore_errors=True)
        shutil.rmtree(self.directory)
