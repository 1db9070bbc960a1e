#!/usr/bin/env python3
"""Times one peer that has a Python interface, with the Python of its own environment, on a model that
tools/bench_peers.sh made. tools/bench_peers.py runs it, a fresh process a sample.

    bench_peer.py openvino|ctranslate2|vllm MODEL --work decode|prefill [--prompt N] [--tokens N] [--threads N] [--repeat N]

Loads once, warms up once, and prints {"tokens_per_s": [a number a run]}. Prefill: tokens of the prompt over the time to
the first new one. Decode: between the first new token and the last, so that what comes before does not count.
"""

import argparse
import json
import os
import pathlib
import random
import tempfile
import time

VOCABULARY = 151936  # tokens of the random Llama

# Each peer: load(model, threads) -> generate(ids, count, on_token), which makes `count` tokens after the prompt `ids`,
# one sequence, greedily, whatever they are, and calls on_token() at each.


def load_openvino(model, threads):
    import numpy as np
    import openvino as ov
    import openvino_genai as genai
    from openvino import opset13 as op

    def serialized(outputs, parameter):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "model.xml")
            ov.save_model(ov.Model(outputs, [parameter], "stub"), path)
            return path.read_text(), ov.Tensor(np.fromfile(path.with_suffix(".bin"), np.uint8))

    # A pipeline wants a tokenizer, and tries it when it is made; the models have none. This one counts strings.
    text = op.parameter([-1], ov.Type.string)
    encoded = [op.unsqueeze(op.shape_of(text), 0) for _ in range(2)]
    for node, name in zip(encoded, ("input_ids", "attention_mask")):
        node.output(0).set_names({name})
    ids = op.parameter([-1, -1], ov.Type.i64)
    decoded = op.constant(np.array([""]), ov.Type.string)
    decoded.output(0).set_names({"string_output"})
    tokenizer = genai.Tokenizer(*serialized(encoded, text), *serialized([decoded], ids))

    # Hyper-threading: else it takes no more threads than there are cores.
    properties = {"INFERENCE_NUM_THREADS": threads, "ENABLE_HYPER_THREADING": True}
    pipeline = genai.LLMPipeline(model, tokenizer, "CPU", **properties)
    config = genai.GenerationConfig()
    config.do_sample = False
    config.ignore_eos = True
    config.set_eos_token_id(VOCABULARY - 1)  # the tokenizer has none, and -1 is refused

    class Streamer(genai.StreamerBase):
        def __init__(self, on_token):
            super().__init__()
            self.on_token = on_token

        def write(self, token):
            self.on_token()
            return genai.StreamingStatus.RUNNING

        def end(self):
            pass

    def generate(ids, count, on_token):
        config.max_new_tokens = count
        pipeline.generate(ov.Tensor(np.array([ids])), config, Streamer(on_token))

    return generate


def load_ctranslate2(model, threads):
    import ctranslate2

    generator = ctranslate2.Generator(model, device="cpu", compute_type="int8", intra_threads=threads)

    def generate(ids, count, on_token):
        generator.generate_batch(
            [[str(i) for i in ids]],  # the vocabulary is the numbers
            max_length=count,
            min_length=count,
            sampling_topk=1,
            include_prompt_in_result=False,  # else the prompt is fed token by token
            callback=lambda step: on_token(),
        )

    return generate


def load_vllm(model, threads):
    cores = sorted(os.sched_getaffinity(0))[:threads]
    os.environ |= {
        "VLLM_CPU_OMP_THREADS_BIND": ",".join(map(str, cores)),
        "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_LOGGING_LEVEL": "ERROR",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
    }
    from vllm import LLM, SamplingParams

    # Eager: compiled, every fresh process would compile. Without AVX-512 its products in bf16 are PyTorch's own, and slow.
    engine = LLM(
        model,
        dtype="bfloat16",
        enforce_eager=True,
        max_model_len=4096,
        enable_prefix_caching=False,
        skip_tokenizer_init=True,
    ).llm_engine

    def generate(ids, count, on_token):
        parameters = SamplingParams(temperature=0, max_tokens=count, ignore_eos=True, detokenize=False)
        engine.add_request(f"{time.monotonic_ns()}", {"prompt_token_ids": ids}, parameters)
        while engine.has_unfinished_requests():
            if engine.step():  # a step of a chunk within the prompt yields nothing
                on_token()

    return generate


PEERS = {"openvino": load_openvino, "ctranslate2": load_ctranslate2, "vllm": load_vllm}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("peer", choices=PEERS)
    parser.add_argument("model")
    parser.add_argument("--work", choices=["decode", "prefill"], required=True)
    parser.add_argument("--prompt", type=int, default=128, help="tokens fed first")
    parser.add_argument("--tokens", type=int, default=16, help="decoded in a run")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--repeat", type=int, default=3, help="runs")
    args = parser.parse_args()

    # Some of them print; what this process says is one JSON document.
    stdout = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    generate = PEERS[args.peer](args.model, args.threads)
    ids = random.Random(1)

    def run(new_tokens):
        """Tokens a second. Other ids each time, lest a cache of prefixes know them."""
        prompt = [ids.randrange(VOCABULARY) for _ in range(args.prompt)]
        times = [time.perf_counter()]
        generate(prompt, new_tokens, lambda: times.append(time.perf_counter()))
        if len(times) != 1 + new_tokens:
            raise RuntimeError(f"got {len(times) - 1} tokens, expected {new_tokens}")
        if args.work == "prefill":
            return args.prompt / (times[1] - times[0])
        return (new_tokens - 1) / (times[-1] - times[1])

    run(2)
    new_tokens = 1 if args.work == "prefill" else args.tokens + 1
    json.dump({"tokens_per_s": [run(new_tokens) for _ in range(args.repeat)]}, stdout)
    stdout.write("\n")
    stdout.flush()
    os._exit(0)  # some take long to leave


if __name__ == "__main__":
    main()
