"""The servers' binaries: fetched once with Maven into the user's cache, by name and version.

A folder of the cache is complete or not there: it is filled under another name and then renamed.
One lock on the cache keeps two stacks from fetching the same thing twice.
"""

import io
import platform
import shutil
import subprocess
import tarfile
import zipfile
from pathlib import Path

from . import layout, packages
from .report import Failure, say

POSTGRES = {14: "14.20.0", 15: "15.15.0", 16: "16.11.0", 17: "17.7.0", 18: "18.1.0"}
KAFKA = "4.4.0"
LOG4J = "2.25.2"
REGISTRY = "2.6.13.Final"
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64v8"}


def postgres(major):
    return _once(f"postgres-{POSTGRES[major]}", _fetch_postgres, POSTGRES[major])


def kafka():
    return _once(f"kafka-{KAFKA}", _fetch_kafka)


def registry():
    return _once(f"registry-{REGISTRY}", _fetch_registry)


def _once(name, fetch, *arguments):
    folder = layout.cache() / name
    if folder.exists():
        return folder
    with layout.held(layout.cache() / "lock"):
        if folder.exists():
            return folder
        packages.require(packages.FETCHING)
        say(f"fetching {name}")
        part = folder.with_name(f"{name}.part")
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir()
        fetch(part, *arguments)
        part.rename(folder)
    return folder


def _maven(*arguments):
    command = ["mvn", "-q", "-B", *arguments]
    result = subprocess.run(
        command, cwd=layout.cache(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, check=False,
    )
    if result.returncode != 0:
        raise Failure(f"{' '.join(command)} failed:\n{result.stdout[-2000:]}")


def _copy(artifact, folder):
    """The one file of `artifact`, put into `folder`."""
    _maven("dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={folder}")
    return next(iter(folder.iterdir()))


def _fetch_postgres(folder, version):
    machine = platform.machine()
    if machine not in _ARCHITECTURES:
        raise Failure(f"no PostgreSQL binaries are known for {machine}")
    name = f"embedded-postgres-binaries-linux-{_ARCHITECTURES[machine]}"
    jar = _copy(f"io.zonky.test.postgres:{name}:{version}", folder)
    with zipfile.ZipFile(jar) as archive:
        inner = next(entry for entry in archive.namelist() if entry.endswith(".txz"))
        with tarfile.open(fileobj=io.BytesIO(archive.read(inner)), mode="r:xz") as tree:
            tree.extractall(folder)
    jar.unlink()


def _fetch_kafka(folder):
    pom = Path(__file__).with_name("kafka-pom.xml")
    _maven(
        "-f", str(pom), "dependency:copy-dependencies", f"-Dkafka.version={KAFKA}",
        f"-Dlog4j.version={LOG4J}", "-DincludeScope=runtime", f"-DoutputDirectory={folder}/libs",
    )


def _fetch_registry(folder):
    archive = _copy(f"io.apicurio:apicurio-registry-app:{REGISTRY}:tar.gz:all", folder)
    with tarfile.open(archive) as tree:
        tree.extractall(folder)
    archive.unlink()
