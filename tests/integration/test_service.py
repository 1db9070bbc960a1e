"""The service as a stranger sees it: reflection, health, streams, errors, signals."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import threading
import time
import unittest

import grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)

import support


class ServiceTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = support.Server()

    @classmethod
    def tearDownClass(cls):
        cls.server.__exit__()

    def request(self, **fields):
        return self.server.message("GenerateRequest")(**fields)

    def test_reflection_lists_the_services(self):
        names = set(ProtoReflectionDescriptorDatabase(self.server.channel).get_services())
        self.assertLessEqual(
            {"lookback.v1.Inference", "lookback.v1.Control", "grpc.health.v1.Health"}, names
        )

    def test_health_is_serving_by_name(self):
        for service in ("", "lookback.v1.Inference", "lookback.v1.Control"):
            self.assertEqual(self.server.health(service), "SERVING")
        with self.assertRaises(grpc.RpcError) as caught:
            self.server.health("no.such.Service")
        self.assertEqual(caught.exception.code(), grpc.StatusCode.NOT_FOUND)

    def test_a_stream_equals_the_offline_generation(self):
        prompt = "The LORD is my"
        request = self.request(text=prompt, max_new_tokens=32, sampling={"temperature": 0.0})
        messages = list(self.server.method("Inference", "GenerateStream")(request))
        text = "".join(message.text for message in messages)
        ids = [token for message in messages for token in message.token_ids]
        offline = support.run_tool(
            "generate",
            str(support.converted_demo()),
            *("--prompt", prompt, "--max-new-tokens", "32", "--temperature", "0", "--print-ids"),
        )
        self.assertEqual(",".join(map(str, ids)), offline.stdout.strip())
        whole = self.server.method("Inference", "Generate")(request)
        self.assertEqual(whole.text, text)
        self.assertTrue(messages[0].HasField("prompt"))
        self.assertTrue(messages[-1].HasField("finish"))
        self.assertEqual(messages[-1].usage.completion_tokens, len(ids))

    def test_tokenize_and_back(self):
        text = "In the beginning, naïve 日本"
        ids = self.server.method("Inference", "Tokenize")(
            self.server.message("TokenizeRequest")(text=text)
        ).token_ids
        self.assertEqual(ids[0], 1)
        back = self.server.method("Inference", "Detokenize")(
            self.server.message("DetokenizeRequest")(token_ids=ids)
        )
        self.assertEqual(back.text, text)

    def test_bad_requests_name_the_field(self):
        for fields, name in (
            ({"text": "a", "sampling": {"top_p": -1.0}}, "top_p"),
            ({"text": "a", "n": 0}, "n"),
            ({}, "text, token_ids"),
        ):
            with self.assertRaises(grpc.RpcError) as caught:
                self.server.method("Inference", "Generate")(self.request(**fields))
            self.assertEqual(caught.exception.code(), grpc.StatusCode.INVALID_ARGUMENT)
            self.assertTrue(caught.exception.details().startswith(name + ": got "))

    def test_windows_and_memory(self):
        table = json.loads((support.DEMO / "windows.json").read_text())["windows"]
        windows = self.server.method("Control", "GetWindows")(
            self.server.message("GetWindowsRequest")()
        )
        got = [
            [head.window if head.HasField("window") else None for head in layer.heads]
            for layer in windows.layers
        ]
        self.assertEqual(got, table)
        self.assertLess(windows.kv_full_context_bytes, windows.kv_full_attention_bytes)

    def test_large_metadata_is_refused(self):
        with self.assertRaises(grpc.RpcError) as caught:
            self.server.method("Control", "GetLoad")(
                self.server.message("GetLoadRequest")(), metadata=[("x-large", "a" * 40000)]
            )
        self.assertEqual(caught.exception.code(), grpc.StatusCode.RESOURCE_EXHAUSTED)

    def test_pings_without_calls_are_tolerated(self):
        options = [
            ("grpc.keepalive_time_ms", 10000),
            ("grpc.keepalive_permit_without_calls", 1),
            ("grpc.http2.max_pings_without_data", 0),
        ]
        with grpc.insecure_channel(self.server.address, options) as channel:
            call = channel.unary_unary(
                "/lookback.v1.Control/GetLoad", response_deserializer=lambda data: data
            )
            call(b"")
            states = []
            channel.subscribe(states.append)
            time.sleep(35)
            call(b"")
            self.assertNotIn(grpc.ChannelConnectivity.TRANSIENT_FAILURE, states)

    def test_the_client_works(self):
        address = self.server.address
        text = support.run_tool(
            *("client", address, "generate", "--prompt", "The LORD is my"),
            *("--temperature", "0", "--max-new-tokens", "8", "--stats"),
        )
        self.assertTrue(text.stdout.strip())
        self.assertIn("time to first token", text.stderr)
        whole = json.loads(
            support.run_tool(
                *("client", address, "generate", "--ids", "1,2,3", "--max-new-tokens", "4", "-n"),
                *("2", "--ignore-eos", "--json"),
            ).stdout
        )
        self.assertEqual(len(whole["token_ids"]), 4)
        self.assertEqual(len(whole["more_choices"]), 1)
        for command in ("info", "windows", "load", "memory", "health"):
            self.assertTrue(support.run_tool("client", address, command).stdout, command)
            if command != "info":
                json.loads(support.run_tool("client", address, command, "--json").stdout)
        ids = support.run_tool("client", address, "tokenize", "hello world").stdout.strip()
        back = support.run_tool("client", address, "detokenize", ids).stdout.strip()
        self.assertEqual(back, "hello world")
        self.assertIn("total", support.run_tool("client", address, "score", "--prompt", "a b").stdout)
        self.assertIn("false", support.run_tool("client", address, "abort", "nobody").stdout)
        bad = support.run_tool(
            *("client", address, "generate", "--prompt", "a", "--top-p", "7"), check=False
        )
        self.assertEqual(bad.returncode, 2)
        self.assertIn("INVALID_ARGUMENT: top_p", bad.stderr)
        self.assertEqual(bad.stderr.count("\n"), 1)

    def test_an_interrupted_client_cancels(self):
        process = subprocess.Popen(
            [
                *(support.TOOL, "client", self.server.address, "generate", "--prompt", "a"),
                *("--ignore-eos", "--max-new-tokens", "500", "-n", "8"),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        process.stdout.read(1)
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=30)
        self.assertEqual(process.returncode, 2)
        self.assertIn("CANCELLED", stderr)


class ProcessTest(unittest.TestCase):
    def test_sigterm_drains_and_exits_0(self):
        with support.Server("--max-context", "2048") as server:
            request = server.message("GenerateRequest")(
                text="a", max_new_tokens=400, ignore_eos=True, request_id="long"
            )
            stream = server.method("Inference", "GenerateStream")(request)
            first = next(stream)
            self.assertTrue(first.HasField("prompt"))
            # A watcher hears of the drain, and does not hold it up.
            watch = server.watch_health()
            self.assertEqual(next(watch), "SERVING")
            code = []
            waiter = threading.Thread(target=lambda: code.append(server.stop()))
            waiter.start()
            self.assertEqual(next(watch), "NOT_SERVING")
            self.assertEqual(server.health(), "NOT_SERVING")
            with self.assertRaises(grpc.RpcError) as caught:
                server.method("Inference", "Generate")(
                    server.message("GenerateRequest")(text="a", max_new_tokens=1)
                )
            self.assertEqual(caught.exception.code(), grpc.StatusCode.UNAVAILABLE)
            last = list(stream)[-1]
            self.assertEqual(last.usage.completion_tokens, 400)
            waiter.join()
            self.assertEqual(code, [0])
            logged = [json.loads(line) for line in server.stderr.splitlines()]
            mine = [line for line in logged if line.get("request_id") == "long"]
            self.assertEqual(len(mine), 1, server.stderr)
            self.assertEqual(mine[0]["completion_tokens"], 400)

    def test_its_compute_threads_are_pinned_and_no_others(self):
        usable = os.sched_getaffinity(0)
        if len(usable) < 2:
            self.skipTest("one CPU: nothing tells a pinned thread from another")
        cpu = max(usable)
        with support.Server("--cpus", str(cpu)) as server:
            server.method("Inference", "Generate")(
                server.message("GenerateRequest")(text="a", max_new_tokens=4)
            )
            masks = []
            for task in os.listdir(f"/proc/{server.process.pid}/task"):
                with contextlib.suppress(ProcessLookupError):  # gRPC's threads come and go
                    masks.append(os.sched_getaffinity(int(task)))
            self.assertEqual(masks.count({cpu}), 1, "the engine's own thread")
            self.assertEqual(masks.count(usable), len(masks) - 1)
            self.assertEqual(server.stop(), 0)
            self.assertIn(f"1 threads on CPUs {cpu},", server.stdout)

    def test_a_second_signal_ends_at_once(self):
        with support.Server("--max-context", "4096") as server:
            request = server.message("GenerateRequest")(
                text="a", max_new_tokens=4000, ignore_eos=True
            )
            stream = server.method("Inference", "GenerateStream")(request)
            next(stream)
            server.process.send_signal(signal.SIGTERM)
            time.sleep(0.5)
            self.assertEqual(server.stop(signal.SIGINT), 1)

    def test_what_cannot_start_says_so_in_one_line(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            model = str(support.converted_demo())
            cpu = str(max(os.sched_getaffinity(0)))
            for flags, code, text in (
                (["--model", model, "--listen", f"127.0.0.1:{port}"], 2, "--listen"),
                (["--model", "/nonexistent"], 2, "/nonexistent"),
                (["--model", str(support.DEMO / "config.json")], 2, "config.json"),
                (["--model", model, "--max-queue", "no"], 2, "--max-queue"),
                (["--model", model, "--cpus", "3-1"], 2, "--cpus"),
                (["--model", model, "--cpus", cpu, "--threads", "2"], 2, "threads: got 2"),
                ([], 2, "model"),
                (["--model", model, "--kv-memory", "1K"], 1, ""),
            ):
                done = subprocess.run(
                    [support.SERVER, *flags], capture_output=True, text=True, timeout=60, check=False
                )
                self.assertEqual(done.returncode, code, (flags, done.stderr))
                self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
                self.assertIn(text, done.stderr)


if __name__ == "__main__":
    unittest.main()
