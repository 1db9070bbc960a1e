#!/usr/bin/env python3
"""Times lookback and its peers in turns (A B B A …) on the files that tools/bench_peers.sh makes, a fresh process a
sample, and prints the median of the paired ratios. Before each block lookback is timed against itself: what that says
is noise. A block whose memory probe fell by more than a tenth is marked. Take the slowest peers with fewer --pairs.
"""

import argparse
import collections.abc
import dataclasses
import json
import os
import pathlib
import statistics
import subprocess

LOOKBACK = "build/release/bin/lookback"
RUNS = 3  # of a process, of which it reports the median


@dataclasses.dataclass
class Peer:
    name: str
    models: dict  # by the weights of lookback that are as wide: file or folder
    time: collections.abc.Callable  # (args, peer, model, work) -> tokens a second
    home: str  # what must be there
    isa: str | None = None  # that lookback is held to


class PeerFailed(Exception):
    pass


def run(command):
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def run_peer(command):
    try:
        return run(command)
    except subprocess.CalledProcessError as error:
        last = (error.stderr.strip().splitlines() or [""])[-1]
        raise PeerFailed(f"exit code {error.returncode}, {last}") from error


def time_llama(args, peer, model, work):
    command = [str(args.dir / peer.home / "bin" / "llama-bench"), "-m", str(args.dir / model)]
    command += ["-t", str(args.threads), "-r", str(RUNS), "-o", "json"]
    if work == "prefill":
        command += ["-p", str(args.prompt), "-n", "0"]
    else:
        command += ["-p", "0", "-n", str(args.tokens), "-d", str(args.context)]
    return statistics.median(run_peer(command)[0]["samples_ts"])


def time_python(args, peer, model, work):
    command = [str(args.dir / peer.home / "bin" / "python"), "tools/bench_peer.py", peer.name, str(args.dir / model)]
    command += ["--work", work, "--prompt", str(args.prompt if work == "prefill" else args.context)]
    command += ["--tokens", str(args.tokens), "--threads", str(args.threads), "--repeat", str(RUNS)]
    return statistics.median(run_peer(command)["tokens_per_s"])


LLAMA = {"bf16": "random-1b-bf16.gguf", "q8": "random-1b-Q8_0.gguf", "q4": "random-1b-Q4_0.gguf"}
PEERS = [
    Peer("llama.cpp", LLAMA, time_llama, "llama"),
    Peer("llama.cpp, AVX2", LLAMA, time_llama, "llama-avx2", isa="avx2"),
    Peer("openvino", {**LLAMA, "bf16": "random-1b-F16.gguf"}, time_python, "venv-openvino"),
    Peer("ctranslate2", {"q8": "random-1b-ctranslate2"}, time_python, "venv-ctranslate2"),
    Peer("vllm", {"bf16": "random-1b"}, time_python, "venv-vllm"),
]


def probe(threads):
    """Bytes a second that all threads read."""
    return run([LOOKBACK, "bench", "cpu", "--threads", str(threads), "--json"])["stream_bytes_per_s"]


def time_lookback(args, weights, work, isa=None):
    command = [LOOKBACK, "bench", work, str(args.dir / f"random-1b-{weights}.safetensors"), "--compute", "fast"]
    command += ["--threads", str(args.threads), "--repeat", str(RUNS), "--json", "--tokens"]
    command += [str(args.prompt)] if work == "prefill" else [str(args.tokens), "--context", str(args.context)]
    if isa:
        os.environ["LOOKBACK_ISA"] = isa
    else:
        os.environ.pop("LOOKBACK_ISA", None)
    return run(command)["tokens_per_s_median"]


def paired(first, second, pairs):
    """Samples of both, taken A B, B A, A B, …"""
    samples = ([], [])
    for pair in range(pairs):
        for side in (0, 1) if pair % 2 == 0 else (1, 0):
            samples[side].append((first, second)[side]())
    return samples


def summary(samples):
    ratios = [a / b for a, b in zip(*samples)]
    return statistics.median(ratios), min(ratios), max(ratios)


def row(args, peer, weights, work):
    """What the table says of lookback beside the peer."""

    def ours():
        return time_lookback(args, weights, work, peer.isa)

    def theirs():
        return peer.time(args, peer, peer.models[weights], work)

    before = probe(args.threads)
    noise, noise_low, noise_high = summary(paired(ours, ours, args.noise_pairs))
    samples = paired(ours, theirs, args.pairs)
    after = probe(args.threads)
    ratio, low, high = summary(samples)
    fell = "  PROBE FELL" if after < 0.9 * before else ""
    return (
        f"{statistics.median(samples[0]):8.2f} {statistics.median(samples[1]):14.2f} "
        f"{ratio:7.2f}  ({low:.2f} – {high:.2f})  "
        f"{noise:8.2f}  ({noise_low:.2f} – {noise_high:.2f})  {before / 1e9:.1f}, {after / 1e9:.1f}{fell}"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dir", type=pathlib.Path)
    parser.add_argument("--peers", default="llama.cpp,openvino,ctranslate2,vllm")
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--noise-pairs", type=int, default=4, help="of lookback against itself")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--weights", nargs="+", choices=list(LLAMA), default=list(LLAMA))
    parser.add_argument("--work", nargs="+", choices=["decode", "prefill"], default=["decode", "prefill"])
    parser.add_argument("--context", type=int, default=128, help="tokens in the cache when decoding begins")
    parser.add_argument("--tokens", type=int, default=16, help="decoded in a run")
    parser.add_argument("--prompt", type=int, default=512, help="tokens of a prefill")
    args = parser.parse_args()

    cpu = run([LOOKBACK, "bench", "cpu", "--threads", str(args.threads), "--json"])
    print(f"{cpu['cpu']}, kernels {cpu['kernels']}, {args.threads} threads, {args.pairs} pairs")
    print("work     weights  peer            lookback     peer tok/s   ratio  (spread)        itself  (spread)       probe GB/s")
    peers = []
    for peer in PEERS:
        skipped = args.dir / f"{peer.name}.skipped"
        if peer.name.split(",")[0] not in args.peers.split(","):
            continue
        if skipped.exists():
            print(f"{'-':8} {'-':8} {peer.name:15} skipped: {skipped.read_text().strip()}")
        elif (args.dir / peer.home).exists():
            peers.append(peer)
    for work in args.work:
        for weights in args.weights:
            for peer in peers:
                if weights not in peer.models:
                    continue
                try:
                    cells = row(args, peer, weights, work)
                except PeerFailed as error:
                    cells = f"failed: {error}"
                print(f"{work:8} {weights:8} {peer.name:15} {cells}", flush=True)


if __name__ == "__main__":
    main()
