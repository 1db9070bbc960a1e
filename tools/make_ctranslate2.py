#!/usr/bin/env python3
"""Writes the weights of a plain Llama, a Hugging Face directory in bf16, in int8 for CTranslate2: for benchmarks only.

    python3 make_ctranslate2.py MODEL_DIR OUTPUT_DIR

There is no tokenizer in it: token 17 is called "17".

Needs: `pip install ctranslate2`. About 10 GB of memory.
"""

import argparse
import json
import pathlib

import numpy as np
from ctranslate2.specs import common_spec, transformer_spec
from make_random_llama import from_bf16, read_safetensors


def fill(spec, weights, layers):
    """Gives every layer of the decoder `spec` its weights, which are those of Hugging Face's names."""

    def tensor(*names):
        return np.concatenate([weights[name + ".weight"] for name in names])

    spec.scale_embeddings = False
    spec.embeddings.weight = tensor("model.embed_tokens")
    spec.layer_norm.gamma = tensor("model.norm")
    spec.projection.weight = tensor("lm_head" if "lm_head.weight" in weights else "model.embed_tokens")
    for i in range(layers):
        attention, mlp = f"model.layers.{i}.self_attn.", f"model.layers.{i}.mlp."
        layer = spec.layer[i]
        layer.self_attention.layer_norm.gamma = tensor(f"model.layers.{i}.input_layernorm")
        layer.self_attention.linear[0].weight = tensor(*(attention + name for name in ("q_proj", "k_proj", "v_proj")))
        layer.self_attention.linear[1].weight = tensor(attention + "o_proj")
        layer.ffn.layer_norm.gamma = tensor(f"model.layers.{i}.post_attention_layernorm")
        layer.ffn.linear_0.weight = tensor(mlp + "gate_proj")
        layer.ffn.linear_0_noact.weight = tensor(mlp + "up_proj")
        layer.ffn.linear_1.weight = tensor(mlp + "down_proj")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("output", type=pathlib.Path)
    args = parser.parse_args()

    config = json.loads((args.model / "config.json").read_text())
    spec = transformer_spec.TransformerDecoderModelSpec.from_config(
        config["num_hidden_layers"],
        config["num_attention_heads"],
        activation=common_spec.Activation.SWISH,
        ffn_glu=True,
        rms_norm=True,
        rotary_dim=0,  # all of them
        rotary_interleave=False,
        rotary_base=config["rope_theta"],
        num_heads_kv=config["num_key_value_heads"],
    )
    weights = {name: from_bf16(values) for name, values in read_safetensors(args.model / "model.safetensors")}
    fill(spec.decoder, weights, config["num_hidden_layers"])
    del weights
    spec.register_vocabulary(str(i) for i in range(config["vocab_size"]))
    spec.config.bos_token, spec.config.eos_token, spec.config.unk_token = "0", "1", "2"
    spec.config.layer_norm_epsilon = config["rms_norm_eps"]
    spec.validate()
    spec.optimize(quantization="int8")
    args.output.mkdir(parents=True, exist_ok=True)
    spec.save(str(args.output))


if __name__ == "__main__":
    main()
