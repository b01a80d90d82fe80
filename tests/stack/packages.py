"""Debian packages that the scripts stand on: installed where root runs them, named where not."""

import importlib.util
import os
import shutil
import subprocess
from collections import namedtuple
from pathlib import Path

from .report import Failure, say

# A package, why it is needed, and what is there when it is: a command, a file or a Python module.
Package = namedtuple("Package", "name reason command file module", defaults=(None, None, None))

SERVERS = (
    Package("openjdk-17-jre-headless", "Kafka and the Schema Registry run on it", "java"),
    Package("openssl", "it makes the certificates for TLS", "openssl"),
)
FETCHING = (
    Package("openjdk-17-jre-headless", "Maven runs on it", "java"),
    Package("maven", "it fetches the servers' binaries", "mvn"),
)
BUILDING = (
    Package("gcc", "it compiles the C parts", "cc"),
    Package("g++", "librdkafka is built with it", "c++"),
    Package("make", "librdkafka is built with it", "make"),
    Package("pkg-config", "it finds the libraries", "pkg-config"),
    Package("libc6-dev", "the C library's headers", file="/usr/include/stdio.h"),
    Package("libssl-dev", "Kafka connections with TLS", file="/usr/include/openssl/ssl.h"),
    Package("zlib1g-dev", "compressed Kafka records", file="/usr/include/zlib.h"),
)
READING = (
    Package("python3-venv", "an independent reader of the log gets its libraries by it",
            module="ensurepip"),
)


def _is_there(package):
    if package.command:
        return shutil.which(package.command) is not None
    if package.module:
        return importlib.util.find_spec(package.module) is not None
    return Path(package.file).exists()


def require(packages):
    """Makes sure that `packages` are there."""
    missing = [package for package in packages if not _is_there(package)]
    if not missing:
        return
    names = [package.name for package in missing]
    reasons = "; ".join(f"{package.name} ({package.reason})" for package in missing)
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        raise Failure(f"missing: {reasons}\nas root: apt-get install -y {' '.join(names)}")
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
