"""Processes of the stack: started in sessions of their own, known by pid files, ended by pid.

A pid is believed only if the process's command line names the stack's directory, so that a pid
which the system has given to somebody else is never signalled. A zombie counts as gone: in a
container nobody may be there to reap it.
"""

import os
import signal
import subprocess
import time
from pathlib import Path

from .report import Failure

POLL_S = 0.02


def _status(pid):
    """(state, parent) of a process, or None."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    return fields[0], int(fields[1])


def zombie(pid):
    status = _status(pid)
    return status is not None and status[0] == "Z"


def alive(pid):
    status = _status(pid)
    return status is not None and status[0] not in "ZX"


def running(stack, name):
    """The pid of server `name`, or None if it does not run."""
    try:
        pid = int(stack.pid_file(name).read_text())
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except (OSError, ValueError):
        return None
    ours = any(os.fsencode(path) + b"/" in command for path in (stack.directory, stack.home))
    return pid if alive(pid) and ours else None


def start(stack, name, command, *, user=None, environment=None, folder=None):
    """Starts a server in the background and writes its pid file."""
    identity = {}
    if user is not None and user.uid != os.geteuid():
        identity = {"user": user.uid, "group": user.gid, "extra_groups": []}
    with open(stack.log(name), "ab") as log:
        process = subprocess.Popen(
            [str(word) for word in command],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            cwd=folder or stack.home, env=environment, **identity,
        )
    part = stack.pid_file(name).with_suffix(".part")
    part.write_text(f"{process.pid}\n", encoding="ascii")
    part.replace(stack.pid_file(name))
    return process


def descendants(pid):
    """All processes below `pid`."""
    parents = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (status := _status(entry)):
            parents.setdefault(status[1], []).append(int(entry))
    found, queue = [], [pid]
    while queue:
        children = parents.get(queue.pop(), [])
        found += children
        queue += children
    return found


def _signal(pid, number):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def gone(pids, deadline_s):
    """Waits until none of `pids` is alive; whether that came to be in time."""
    end = time.monotonic() + deadline_s
    while any(alive(pid) for pid in pids):
        if time.monotonic() > end:
            return False
        time.sleep(POLL_S)
    return True


def kill(stack, name):
    """SIGKILL to the whole server at once, as a crash: first no more children, then all of them."""
    pid = running(stack, name)
    if pid is not None:
        _signal(pid, signal.SIGSTOP)
        pids = [pid, *descendants(pid)]
        for each in pids:
            _signal(each, signal.SIGKILL)
        if not gone(pids, 30):
            raise Failure(f"{name} (process {pid}) does not die")
    stack.pid_file(name).unlink(missing_ok=True)


def stop(stack, name, number, deadline_s):
    """A clean stop by the server's own signal; what does not heed it in time is killed."""
    pid = running(stack, name)
    if pid is None:
        stack.pid_file(name).unlink(missing_ok=True)
        return True
    pids = [pid, *descendants(pid)]
    _signal(pid, number)
    clean = gone(pids, deadline_s)
    if not clean:
        kill(stack, name)
    stack.pid_file(name).unlink(missing_ok=True)
    return clean


def wait_until_ready(stack, name, process, ready, deadline_s):
    """Waits until `ready()`; shows the end of the log where the server ends or the time is over."""
    end = time.monotonic() + deadline_s
    while not ready():
        if process.poll() is not None:
            raise Failure(f"{name} ended with status {process.returncode}\n{tail(stack, name)}")
        if time.monotonic() > end:
            raise Failure(f"{name} is not ready after {deadline_s} s\n{tail(stack, name)}")
        time.sleep(POLL_S)


def tail(stack, name, lines=15):
    text = stack.log(name).read_text(encoding="utf-8", errors="replace").splitlines()
    return "\n".join([f"the end of {stack.log(name)}:", *text[-lines:]])
