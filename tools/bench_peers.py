#!/usr/bin/env python3
"""Times lookback and llama.cpp in turns (A B B A …) on the files that tools/bench_peers.sh makes, a fresh process a
sample, and prints the median of the paired ratios. Before each block lookback is timed against itself: what that says
is noise. A block whose memory probe fell by more than a tenth is marked.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess

LOOKBACK = "build/release/bin/lookback"
GGUF = {"bf16": "bf16", "q8": "Q8_0", "q4": "Q4_0"}
RUNS = 3  # of a process, of which it reports the median


def run(command):
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


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


def time_llama(args, build, weights, work):
    command = [str(args.dir / build / "bin" / "llama-bench"), "-m", str(args.dir / f"random-1b-{GGUF[weights]}.gguf")]
    command += ["-t", str(args.threads), "-r", str(RUNS), "-o", "json"]
    if work == "prefill":
        command += ["-p", str(args.prompt), "-n", "0"]
    else:
        command += ["-p", "0", "-n", str(args.tokens), "-d", str(args.context)]
    return statistics.median(run(command)[0]["samples_ts"])


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


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dir", type=pathlib.Path)
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--noise-pairs", type=int, default=4, help="of lookback against itself")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--weights", nargs="+", choices=list(GGUF), default=list(GGUF))
    parser.add_argument("--work", nargs="+", choices=["decode", "prefill"], default=["decode", "prefill"])
    parser.add_argument("--context", type=int, default=128, help="tokens in the cache when decoding begins")
    parser.add_argument("--tokens", type=int, default=16, help="decoded in a run")
    parser.add_argument("--prompt", type=int, default=512, help="tokens of a prefill")
    args = parser.parse_args()

    cpu = run([LOOKBACK, "bench", "cpu", "--threads", str(args.threads), "--json"])
    print(f"{cpu['cpu']}, kernels {cpu['kernels']}, {args.threads} threads, {args.pairs} pairs")
    print("work     weights  peer            lookback     peer tok/s   ratio  (spread)        itself  (spread)       probe GB/s")
    builds = [("llama", None)]
    if (args.dir / "llama-avx2").exists():
        builds.append(("llama-avx2", "avx2"))
    for work in args.work:
        for weights in args.weights:
            for build, isa in builds:
                ours = lambda: time_lookback(args, weights, work, isa)  # noqa: E731
                before = probe(args.threads)
                noise, noise_low, noise_high = summary(paired(ours, ours, args.noise_pairs))
                samples = paired(ours, lambda: time_llama(args, build, weights, work), args.pairs)
                after = probe(args.threads)
                ratio, low, high = summary(samples)
                fell = "  PROBE FELL" if after < 0.9 * before else ""
                print(
                    f"{work:8} {weights:8} {build:12} {statistics.median(samples[0]):11.2f} "
                    f"{statistics.median(samples[1]):14.2f} {ratio:7.2f}  ({low:.2f} – {high:.2f})  "
                    f"{noise:8.2f}  ({noise_low:.2f} – {noise_high:.2f})  {before / 1e9:.1f}, {after / 1e9:.1f}{fell}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
