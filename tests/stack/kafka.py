"""Kafka of the stack: one node that is broker and controller (KRaft).

Topics are made on request only. Sessions may be short, so that tests of members that die need not
wait for long; the broker's own is short because a broker that comes back from a crash is let in
only when its former session is over. The node lives for minutes, so its virtual machine stops at
its first compiler: the second takes more of two cores than the node itself.
"""

import base64
import os
import signal
import socket
import struct
import subprocess
import uuid

from . import binaries, processes
from .report import Failure

READY_S = 90
STOP_S = 30
CLEAN_STOP = signal.SIGTERM
HEAP = "512m"

PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{broker}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={data}
auto.create.topics.enable=false
num.network.threads=2
num.io.threads=4
offsets.topic.num.partitions=4
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=1000
broker.heartbeat.interval.ms=500
broker.session.timeout.ms=4000
"""

LOGGING = """\
Configuration:
  Appenders:
    Console:
      name: stdout
      PatternLayout:
        pattern: "%d %p %c{1}: %m%n"
  Loggers:
    Root:
      level: WARN
      AppenderRef:
        ref: stdout
"""


def _java(stack, *arguments):
    logging = stack.home / "kafka-log4j2.yaml"
    return ["java", f"-Xmx{HEAP}", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
            "-Xshare:auto", f"-Dlog4j2.configurationFile={logging}",
            "-cp", f"{binaries.kafka()}/libs/*", *arguments]


def _initialize(stack):
    data = stack.home / "kafka"
    properties = stack.home / "kafka.properties"
    if data.exists():
        return properties
    (stack.home / "kafka-log4j2.yaml").write_text(LOGGING, encoding="ascii")
    properties.write_text(PROPERTIES.format(
        broker=stack.ports["kafka"], controller=stack.ports["kafka_controller"], data=data,
    ), encoding="utf-8")
    cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    command = _java(stack, "kafka.tools.StorageTool", "format",
                    f"--cluster-id={cluster}", "--config", properties)
    result = subprocess.run(
        [str(word) for word in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, check=False)
    if result.returncode != 0:
        raise Failure(f"Kafka's storage cannot be formatted:\n{result.stdout[-2000:]}")
    return properties


def start(stack, name):
    """Starts the node and waits until it answers as a broker."""
    properties = _initialize(stack)
    command = _java(stack, "kafka.Kafka", properties)
    process = processes.start(stack, name, command, environment=dict(os.environ))
    processes.wait_until_ready(stack, name, process, lambda: ready(stack.ports[name]), READY_S)


def ready(port):
    """Whether a metadata request is answered with this broker in it."""
    client = b"stack"
    header = struct.pack(">hhih", 3, 1, 1, len(client)) + client
    request = header + struct.pack(">i", 0)  # no topics: brokers only
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
            connection.sendall(struct.pack(">i", len(request)) + request)
            answer = connection.recv(4096)
    except OSError:
        return False
    # length, correlation id, then the number of brokers
    return len(answer) >= 12 and struct.unpack_from(">i", answer, 8)[0] >= 1


def address(stack):
    return f"127.0.0.1:{stack.ports['kafka']}"
