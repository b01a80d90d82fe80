"""The Schema Registry of the stack: Apicurio, with Confluent's API, its schemas kept in a file.

Kept at once (WRITE_DELAY=0): an id that was given to a client survives a kill.
"""

import os
import signal
import urllib.error
import urllib.request

from . import binaries, processes

READY_S = 90
STOP_S = 30
CLEAN_STOP = signal.SIGTERM
HEAP = "384m"


def start(stack, name):
    """Starts the registry and waits until it answers."""
    folder = stack.home / "registry"
    folder.mkdir(exist_ok=True)
    database = f"jdbc:h2:file:{folder}/registry;WRITE_DELAY=0"
    command = [
        "java", f"-Xmx{HEAP}", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto",
        "-Dquarkus.http.host=127.0.0.1", f"-Dquarkus.http.port={stack.ports[name]}",
        f"-Dregistry.datasource.url={database}", f"-Dquarkus.datasource.jdbc.url={database}",
        "-jar", next(iter(binaries.registry().glob("*-runner.jar"))),
    ]
    process = processes.start(stack, name, command, environment=dict(os.environ), folder=folder)
    processes.wait_until_ready(stack, name, process, lambda: ready(stack), READY_S)


def ready(stack):
    try:
        with urllib.request.urlopen(f"{url(stack)}/subjects", timeout=5) as answer:
            return answer.status == 200
    except (urllib.error.URLError, OSError):
        return False


def url(stack):
    return f"http://127.0.0.1:{stack.ports['registry']}/apis/ccompat/v7"
