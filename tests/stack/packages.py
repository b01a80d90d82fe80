"""Debian packages the stack stands on: installed where root runs it, named where not."""

import os
import shutil
import subprocess

from .report import Failure, say

# command: (package, why)
NEEDED = {
    "java": ("openjdk-17-jre-headless", "Kafka and the Schema Registry run on it"),
    "mvn": ("maven", "it fetches the servers' binaries"),
    "openssl": ("openssl", "it makes the certificates for TLS"),
}


def require(*commands):
    """Makes sure that `commands` are there."""
    missing = [NEEDED[command] for command in commands if not shutil.which(command)]
    if not missing:
        return
    names = [package for package, _ in missing]
    reasons = "; ".join(f"{package}: {why}" for package, why in missing)
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        raise Failure(f"missing {reasons}\nas root: apt-get install -y {' '.join(names)}")
    say(f"installing {reasons}")
    install = ["apt-get", "install", "-y", "-q", "--no-install-recommends", *names]
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    if _quiet(install, environment).returncode == 0:
        return
    _quiet(["apt-get", "update", "-q"], environment)
    result = _quiet(install, environment)
    if result.returncode != 0:
        raise Failure(f"{' '.join(install)} failed:\n{result.stdout[-2000:]}")


def _quiet(command, environment):
    return subprocess.run(
        command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, check=False,
    )
