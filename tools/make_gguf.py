#!/usr/bin/env python3
"""Writes the weights of a plain Llama, a Hugging Face directory in bf16, as GGUF: for benchmarks of llama.cpp only.

    python3 make_gguf.py MODEL_DIR OUTPUT.gguf

There is no tokenizer in it, and the rows of the query and key projections are not reordered for llama.cpp's RoPE: it
computes other text than the original at the same cost.

Needs: `pip install gguf numpy`.
"""

import argparse
import json
import pathlib

import gguf
import numpy as np
from make_random_llama import from_bf16, read_safetensors

# Hugging Face name within a layer -> GGUF name within a block.
LAYER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
ENDS = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def gguf_name(name):
    base = name.removesuffix(".weight")
    if base in ENDS:
        return ENDS[base] + ".weight"
    _, _, layer, part = base.split(".", 3)
    return f"blk.{layer}.{LAYER[part]}.weight"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("output", type=pathlib.Path)
    args = parser.parse_args()

    config = json.loads((args.model / "config.json").read_text())
    writer = gguf.GGUFWriter(args.output, "llama")
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_rope_dimension_count(config["head_dim"])
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])
    writer.add_tokenizer_model("none")

    for name, bits in read_safetensors(args.model / "model.safetensors"):
        if bits.ndim == 1:  # norms are f32
            writer.add_tensor(gguf_name(name), from_bf16(bits))
        else:
            writer.add_tensor(gguf_name(name), bits.view(np.uint8), raw_dtype=gguf.GGMLQuantizationType.BF16)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
