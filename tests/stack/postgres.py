"""A PostgreSQL server of the stack: made by initdb, run as a system user where the caller is root.

PostgreSQL refuses to run as root; then the user `walbraid-stack` is made and owns the data. The
settings are those of a small, honest server: fsync stays on, nothing that a test observes is
relaxed; limits are high enough for many streams side by side.
"""

import os
import pwd
import shutil
import signal
import socket
import subprocess
from collections import namedtuple

from . import binaries, layout, processes
from .report import Failure, say

SYSTEM_USER = "walbraid-stack"
SUPERUSER = "postgres"
READY_S = 60
STOP_S = 60
CLEAN_STOP = signal.SIGINT  # "fast": sessions are ended, a checkpoint is written

User = namedtuple("User", "uid gid")

# Access: the superuser by trust; a role in one of the groups as the group says; all others SCRAM.
HBA = """\
local   all,replication  all             trust
local   all              all             trust
host    all,replication  postgres        127.0.0.1/32  trust
host    all              postgres        127.0.0.1/32  trust
host    all              +auth_trust     127.0.0.1/32  trust
hostssl all              +auth_cert      127.0.0.1/32  cert
host    all              +auth_md5       127.0.0.1/32  md5
host    all              +auth_password  127.0.0.1/32  password
host    replication      all             127.0.0.1/32  scram-sha-256
hostssl all              +auth_tls_only  127.0.0.1/32  scram-sha-256
host    all              +auth_tls_only  127.0.0.1/32  reject
host    all              all             127.0.0.1/32  scram-sha-256
"""

ROLES = """\
CREATE ROLE auth_trust;
CREATE ROLE auth_cert;
CREATE ROLE auth_md5;
CREATE ROLE auth_password;
CREATE ROLE auth_tls_only;
CREATE ROLE walbraid_cert LOGIN REPLICATION IN ROLE auth_cert;
CREATE ROLE walbraid_scram LOGIN REPLICATION PASSWORD 'scram secret';
CREATE ROLE walbraid_password LOGIN REPLICATION IN ROLE auth_password PASSWORD 'plain secret';
CREATE ROLE walbraid_tls LOGIN REPLICATION IN ROLE auth_tls_only PASSWORD 'tls secret';
SET password_encryption = 'md5';
CREATE ROLE walbraid_md5 LOGIN REPLICATION IN ROLE auth_md5 PASSWORD 'md5 secret';
"""

SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_permissions": "0777",
    "wal_level": "logical",
    "max_connections": "400",
    "max_wal_senders": "100",
    "max_replication_slots": "400",
    "max_prepared_transactions": "100",
    "max_worker_processes": "32",
    "max_logical_replication_workers": "16",
    "track_commit_timestamp": "on",
    "shared_buffers": "256MB",
    "max_wal_size": "4GB",
    "checkpoint_timeout": "15min",
    "jit": "off",
    "lc_messages": "C",
    "ssl": "on",
    "ssl_cert_file": "server.crt",
    "ssl_key_file": "server.key",
    "ssl_ca_file": "ca.crt",
    "log_checkpoints": "off",
    "log_line_prefix": "%m [%p] %q%u@%d %a ",
    "log_timezone": "UTC",
}


def system_user():
    """Who runs the servers: the caller, or for root a user of their own."""
    if os.geteuid() != 0:
        return User(os.geteuid(), os.getegid())
    try:
        entry = pwd.getpwnam(SYSTEM_USER)
    except KeyError:
        say(f"making the system user {SYSTEM_USER}: PostgreSQL refuses to run as root")
        result = subprocess.run(
            ["useradd", "--system", "--user-group", "--no-create-home",
             "--home-dir", "/nonexistent", "--shell", "/usr/sbin/nologin", SYSTEM_USER],
            check=False, stderr=subprocess.PIPE, text=True)
        # Another stack may have made it a moment ago (9: it is there).
        if result.returncode not in (0, 9):
            raise Failure(f"useradd failed: {result.stderr.strip()}") from None
        entry = pwd.getpwnam(SYSTEM_USER)
    return User(entry.pw_uid, entry.pw_gid)


def _data(stack, name):
    return stack.home / name


def _programs(stack, name, user):
    """The folder of the server's binaries, copied into the stack where `user` cannot reach it."""
    major = stack.versions[name]
    folder = binaries.postgres(major)
    if layout.reachable(folder, user.uid) or user.uid == os.geteuid():
        return folder / "bin"
    near = stack.home / f"postgres-{major}-{name}"
    if not near.exists():
        part = near.with_suffix(".part")
        shutil.rmtree(part, ignore_errors=True)
        shutil.copytree(folder, part, symlinks=True, copy_function=_link)
        part.rename(near)
    return near / "bin"


def _link(source, target, *, follow_symlinks=True):
    try:
        os.link(source, target, follow_symlinks=follow_symlinks)
    except OSError:
        shutil.copy2(source, target, follow_symlinks=follow_symlinks)


def _run(stack, user, command, text=None):
    identity = {}
    if user.uid != os.geteuid():
        identity = {"user": user.uid, "group": user.gid, "extra_groups": []}
    result = subprocess.run(
        [str(word) for word in command], cwd=stack.home, env=_environment(), input=text,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, **identity)
    if result.returncode != 0 or "FATAL:" in result.stdout or "ERROR:" in result.stdout:
        raise Failure(f"{command[0]} failed:\n{result.stdout[-2000:]}")


def _environment():
    return {"PATH": os.defpath, "LC_ALL": "C.UTF-8", "TZ": "UTC"}


def _initialize(stack, name, programs, user):
    data = _data(stack, name)
    if data.exists():
        return
    part = data.with_name(f"{name}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(mode=0o700)
    os.chown(part, user.uid, user.gid)
    _run(stack, user, [programs / "initdb", "-D", part, "-U", SUPERUSER, "--auth=trust",
                       "--encoding=UTF8", "--locale=C.UTF-8", "--no-sync", "--no-instructions"])
    for file in ("ca.crt", "server.crt", "server.key"):
        shutil.copy(stack.directory / "tls" / file, part / file)
        os.chown(part / file, user.uid, user.gid)
    (part / "server.key").chmod(0o600)
    (part / "pg_hba.conf").write_text(HBA, encoding="ascii")
    with open(part / "postgresql.conf", "a", encoding="utf-8") as file:
        file.write("\n".join(_settings(stack, name)) + "\n")
    _run(stack, user, [programs / "postgres", "--single", "-D", part, "postgres"], ROLES)
    part.rename(data)


def _forget_zombie(stack, name):
    """Takes away the lock files of a killed server that nobody has reaped.

    PostgreSQL takes a zombie for a running postmaster and would refuse to start.
    """
    lock = _data(stack, name) / "postmaster.pid"
    try:
        pid = int(lock.read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        return
    if processes.zombie(pid):
        lock.unlink()
        socket_lock = stack.home / "sockets" / f".s.PGSQL.{stack.ports[name]}.lock"
        socket_lock.unlink(missing_ok=True)


def _settings(stack, name):
    settings = {**SETTINGS, "port": str(stack.ports[name]), "cluster_name": name}
    sockets = stack.home / "sockets"
    short = len(str(sockets)) < 80  # the kernel's limit is 107 bytes with the file's name
    settings["unix_socket_directories"] = str(sockets) if short else ""
    if stack.versions[name] >= 18:
        settings["max_active_replication_origins"] = "400"
    return [f"{key} = '{value}'" for key, value in settings.items()]


def start(stack, name):
    """Starts the server and waits until it takes connections."""
    user = system_user()
    programs = _programs(stack, name, user)
    sockets = stack.home / "sockets"
    sockets.mkdir(exist_ok=True)
    os.chown(sockets, user.uid, user.gid)
    _initialize(stack, name, programs, user)
    _forget_zombie(stack, name)
    process = processes.start(stack, name, [programs / "postgres", "-D", _data(stack, name)],
                              user=user, environment=_environment())
    processes.wait_until_ready(stack, name, process, lambda: ready(stack.ports[name]), READY_S)


def ready(port):
    """Whether a session can be opened (a server in recovery listens too, but refuses)."""
    parameters = b"user\0postgres\0database\0postgres\0\0"
    startup = (8 + len(parameters)).to_bytes(4, "big") + (196608).to_bytes(4, "big") + parameters
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
            connection.sendall(startup)
            answer = connection.recv(1)
            connection.sendall(b"X\0\0\0\4")
            return answer == b"R"
    except OSError:
        return False


def url(stack, name):
    return f"postgres://{SUPERUSER}@127.0.0.1:{stack.ports[name]}/postgres"
