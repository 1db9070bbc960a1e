"""Starts the built server on the converted demo; talks to it through reflection alone."""

import os
import pathlib
import signal
import subprocess
import tempfile
import time

import grpc
from google.protobuf import descriptor_pool, message_factory
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)

SERVER = os.environ["LOOKBACK_SERVER_BINARY"]
TOOL = os.environ["LOOKBACK_TOOL_BINARY"]
DEMO = pathlib.Path(os.environ["LOOKBACK_SOURCE_DIR"]) / "tools" / "demo"

_folder = tempfile.TemporaryDirectory(prefix="lookback-integration-")
FOLDER = pathlib.Path(_folder.name)


def converted_demo():
    """The path of the converted demo; converts on the first call."""
    path = FOLDER / "demo.safetensors"
    if not path.exists():
        run_tool("convert", str(DEMO), "-o", str(path))
    return path


def run_tool(*arguments, check=True):
    done = subprocess.run(
        [TOOL, *arguments], capture_output=True, text=True, timeout=120, check=False
    )
    if check and done.returncode != 0:
        raise AssertionError(f"{arguments}: exit {done.returncode}: {done.stderr}")
    return done


class Server:
    """A running lookback-server; use as a context manager."""

    def __init__(self, *flags):
        self.port_file = FOLDER / f"port-{time.monotonic_ns()}"
        self.process = subprocess.Popen(
            [
                SERVER,
                "--model",
                str(converted_demo()),
                "--listen",
                "127.0.0.1:0",
                "--port-file",
                str(self.port_file),
                "--compute",
                "exact",
                "--log-requests",
                *flags,
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        deadline = time.monotonic() + 60
        while not self.port_file.exists():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.process.kill()
                raise AssertionError("server did not start: " + self.process.communicate()[1])
            time.sleep(0.02)
        self.address = f"127.0.0.1:{int(self.port_file.read_text())}"
        self.channel = grpc.insecure_channel(self.address)
        self.pool = descriptor_pool.DescriptorPool(ProtoReflectionDescriptorDatabase(self.channel))
        self.stderr = ""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        if not self.process.stdout.closed:
            self.process.communicate()
        self.channel.close()

    def message(self, name):
        """The class of the message lookback.v1.NAME."""
        return message_factory.GetMessageClass(
            self.pool.FindMessageTypeByName(f"lookback.v1.{name}")
        )

    def method(self, service, name):
        """A callable for the method, made from its descriptor."""
        descriptor = self.pool.FindServiceByName(f"lookback.v1.{service}").FindMethodByName(name)
        reply = message_factory.GetMessageClass(descriptor.output_type)
        make = self.channel.unary_stream if descriptor.server_streaming else self.channel.unary_unary
        return make(
            f"/lookback.v1.{service}/{name}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=reply.FromString,
        )

    def health(self, service="lookback.v1.Inference"):
        stub = health_pb2_grpc.HealthStub(self.channel)
        reply = stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=10)
        return health_pb2.HealthCheckResponse.ServingStatus.Name(reply.status)

    def watch_health(self, service="lookback.v1.Inference"):
        """Yields the status now and at every change, until the server is gone."""
        stub = health_pb2_grpc.HealthStub(self.channel)
        for reply in stub.Watch(health_pb2.HealthCheckRequest(service=service), timeout=60):
            yield health_pb2.HealthCheckResponse.ServingStatus.Name(reply.status)

    def stop(self, signal_number=signal.SIGTERM, timeout=60):
        """Sends the signal; returns the exit code."""
        self.process.send_signal(signal_number)
        self.stdout, self.stderr = self.process.communicate(timeout=timeout)
        return self.process.returncode
