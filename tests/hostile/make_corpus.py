#!/usr/bin/env python3
"""Writes the corpus of broken files: files/READER/NAME and expected.tsv (path, what the error says).

READER names how corpus_test.cc reads the file. The files lie beside this script and change only with
it: the same script gives the same bytes. Python's standard library is enough.
    tests/hostile/make_corpus.py
"""

import binascii
import json
import pathlib
import shutil
import struct
import zlib

HERE = pathlib.Path(__file__).resolve().parent
FILES = HERE / "files"
EXPECTED = []


def add(path, data, says):
    """A file, or a folder given as a dict of files, whose reading ends in an error that says `says`."""
    if isinstance(data, dict):
        for name, content in data.items():
            write(f"{path}/{name}", content)
    else:
        write(path, data)
    EXPECTED.append(f"{path}\t{says}\n")


def write(path, data):
    target = FILES / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(data.encode() if isinstance(data, str) else data)


# safetensors ------------------------------------------------------------------------------------


def safetensors(header, data=b"", length=None):
    text = (header if isinstance(header, str) else json.dumps(header)).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def entry(shape, begin, end, dtype="F32"):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def add_safetensors():
    cases = {
        "empty": (b"", "got 0 bytes, expected a safetensors file"),
        "seven_bytes": (b"\1" * 7, "got 7 bytes"),
        "length_huge": (safetensors("{}", length=2**63), "header length in "),
        "length_beyond_cap": (safetensors("{}", length=100_000_001), "header length in "),
        "length_beyond_file": (safetensors("{}", length=3), "expected at most 2"),
        "no_object": (safetensors("[]"), "expected a JSON object"),
        "cut_json": (safetensors('{"a": {"dtype"'), "a JSON syntax error at byte"),
        "nested": (safetensors('{"a": {"dtype": ' + "[" * 200), "key \"dtype\" of tensor \"a\""),
        "tensor_twice": (
            safetensors('{"a": %s, "a": %s}' % ((json.dumps(entry([1], 0, 4)),) * 2), b"1234"),
            "twice"),
        "unknown_dtype": (safetensors({"a": entry([1], 0, 1, "F8_E4M3")}, b"1"), "\"F8_E4M3\""),
        "negative_shape": (safetensors({"a": entry([-1], 0, 4)}, b"1234"), "shape"),
        "shape_overflow": (safetensors({"a": entry([2**32, 2**32], 0, 4)}, b"1234"),
                           "expected fewer than 2^63 bytes"),
        "shape_times_dtype_overflow": (safetensors({"a": entry([2**61], 0, 4, "F64")}, b"1234"),
                                       "expected fewer than 2^63 bytes"),
        "offset_beyond_file": (safetensors({"a": entry([2], 0, 8)}, b"1234"),
                               "the bytes behind the header"),
        "offset_backwards": (safetensors({"a": entry([1], 4, 0)}, b"1234"), "expected begin <= end"),
        "offset_beyond_int64": (
            safetensors('{"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 1%s]}}'
                        % ("0" * 30), b"1234"), "key \"data_offsets\" of tensor \"a\""),
        "size_lies": (safetensors({"a": entry([3], 0, 4)}, b"1234"), "expected 12 for F32[3]"),
        "overlap": (safetensors({"a": entry([2], 0, 8), "b": entry([2], 4, 12)}, b"1" * 12),
                    "an overlap at byte"),
        "hole": (safetensors({"a": entry([1], 0, 4), "b": entry([1], 8, 12)}, b"1" * 12),
                 "a hole at byte"),
        "bytes_behind": (safetensors({"a": entry([1], 0, 4)}, b"12345678"), "size of "),
        "metadata_number": (safetensors({"__metadata__": {"a": 1}}), "metadata \"a\""),
    }
    for name, (data, says) in cases.items():
        add(f"safetensors/{name}.safetensors", data, says)


# pickles ----------------------------------------------------------------------------------------


def text(value):
    return b"X" + struct.pack("<I", len(value)) + value.encode()


def number(value):
    return b"J" + struct.pack("<i", value)


def document(body, protocol=2):
    return b"\x80" + bytes([protocol]) + body + b"."


def tensor(key="0", kind=b"FloatStorage", elements=4, offset=0, shape=(2, 2), strides=(2, 1)):
    def sizes(values):
        return b"(" + b"".join(number(v) for v in values) + b"t"

    return (b"ctorch._utils\n_rebuild_tensor_v2\n((" + text("storage") + b"ctorch\n" + kind + b"\n"
            + text(key) + text("cpu") + number(elements) + b"tQ" + number(offset) + sizes(shape)
            + sizes(strides) + b"\x89ccollections\nOrderedDict\n)RtR")


def state_dict(**tensors):
    items = b"".join(text(name) + body for name, body in tensors.items())
    return document(b"ccollections\nOrderedDict\n)R(" + items + b"u")


# What the pickles below would do if anything of them were executed.
MARK = "touch lookback-hostile-file-was-executed"


def add_pickles():
    doubled = b"K\1"
    for i in range(40):
        doubled += b"q" + bytes([i]) + b"h" + bytes([i]) + b"\x86"
    no_execution = "nothing of the file is executed"
    cases = {
        "os_system": (document(b"cos\nsystem\n" + text(MARK) + b"\x85R"), "global \"os.system\""),
        "posix_system": (document(b"cposix\nsystem\n" + text(MARK) + b"\x85R"), no_execution),
        "stack_global_eval": (
            document(b"\x8c\x08builtins\x8c\x04eval\x93" + text("__import__('os')") + b"\x85R", 4),
            "global \"builtins.eval\""),
        "getattr_of_torch": (document(b"ctorch\n_utils.os.system\n" + text(MARK) + b"\x85R"),
                             "global \"torch._utils.os.system\""),
        "nested_name": (document(b"\x8c\x05torch\x8c\x19_utils._rebuild_tensor_v2\x93)R", 4),
                        "global \"torch._utils._rebuild_tensor_v2\""),
        "runstring": (document(b"ctorch._dynamo.guards\nGuardBuilder.get\n)R"), no_execution),
        "torch_load": (document(b"ctorch.serialization\nload\n" + text("/dev/zero") + b"\x85R"),
                       "global \"torch.serialization.load\""),
        "inst": (document(b"(" + text(MARK) + b"ios\nsystem\n"), "opcode INST"),
        "obj": (document(b"(cos\nsystem\n" + text(MARK) + b"o"), "global \"os.system\""),
        "newobj": (document(b"ccollections\nOrderedDict\n)\x81"), "opcode NEWOBJ"),
        "newobj_ex": (document(b"ccollections\nOrderedDict\n)}\x92", 4), "opcode NEWOBJ_EX"),
        "extension": (document(b"\x82\1"), "opcode EXT1"),
        "persid": (b"\x80\2P0\n.", "opcode PERSID"),
        "reduce_data": (document(b"})R"), "REDUCE of a dict"),
        "reduce_storage_type": (document(b"ctorch\nFloatStorage\n(K\1tR"),
                                "REDUCE of torch.FloatStorage"),
        "build_plain_dict": (document(b"}}b"), "BUILD of a dict"),
        "build_setstate": (document(b"ccollections\nOrderedDict\n)RK\1b"), "BUILD of a dict"),
        "build_global": (document(b"ctorch\nSize\n}b"), "BUILD of torch.Size"),
        "memo_missing": (document(b"j\xff\xff\xff\xff"), "memo 4294967295"),
        "memo_doubles": (document(doubled), "unfold to more than the limit"),
        "memo_cycle": (document(b"]q\1h\1a"), "contains itself"),
        "memo_cycle_in_dict": (document(b"}q\1" + text("self") + b"h\1s"), "contains itself"),
        "deep_lists": (document(b"]" * 3000 + b"a" * 2999), "more than 32 levels"),
        "deep_tuples": (document(b")" + b"\x85" * 3000), "more than 32 levels"),
        "string_length_lies": (b"\x80\2X\xff\xff\xff\x7fabc", "2147483647 bytes to follow"),
        "bytes8_length_lies": (b"\x80\4\x8e" + b"\xff" * 8, "18446744073709551615 bytes"),
        "frame_lies": (b"\x80\4\x95" + b"\xff" * 8 + b"N.", "a frame beyond the end"),
        "huge_integer": (document(b"\x8a\xff" + b"\x7f" * 255), "an integer of 255 bytes"),
        "key_is_a_list": (document(b"}]Ns"), "the key a list of 0"),
        "key_twice": (document(b"}(K\1NK\1Nu"), "the integer 1 twice"),
        "protocol_0": (b"(lp0\n.", "a pickle of protocol 2"),
        "protocol_9": (b"\x80\x09N.", "pickle protocol 9"),
        "no_stop": (b"\x80\2N", "a STOP before it"),
        "bytes_behind": (document(b"N") + b"cos\nsystem\n.", "12 bytes after it"),
        "stack_underflow": (document(b"\x86"), "not on the stack"),
    }
    for name, (data, says) in cases.items():
        add(f"pickle/{name}.pkl", data, says)


# .pt --------------------------------------------------------------------------------------------


def archive(parts, entries=None, disk=0, comment=b"", end64=None):
    """A ZIP file; a part is (name, data) or (name, data, what the headers say instead)."""
    out, directory = b"", b""
    for name, data, *rest in parts:
        lies = rest[0] if rest else {}
        raw = name if isinstance(name, bytes) else name.encode()
        crc = lies.get("crc", binascii.crc32(data))
        common = struct.pack("<HHHIIII", 20, lies.get("flags", 0), lies.get("method", 0), 0x210000,
                             crc, len(data), lies.get("bytes", len(data)))
        offset = lies.get("offset", len(out))
        local = lies.get("local_name", raw)
        out += b"PK\3\4" + common + struct.pack("<HH", len(local), 0) + local + data
        directory += (b"PK\1\2" + struct.pack("<H", 20) + common
                      + struct.pack("<HHHHHII", len(raw), 0, 0, 0, 0, 0, offset) + raw)
    count = len(parts) if entries is None else entries
    end = end64 or b""
    return (out + directory + end + b"PK\5\6"
            + struct.pack("<HHHHIIH", disk, 0, count, count, len(directory), len(out), len(comment))
            + comment)


STORAGE = struct.pack("<4f", 1, 2, 3, 4)


def checkpoint(pickle, *more, byteorder=b"little"):
    return [("m/data.pkl", pickle), ("m/byteorder", byteorder), ("m/data/0", STORAGE), *more]


def deflate(data):
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    return packer.compress(data) + packer.flush()


def add_archives():
    good = state_dict(w=tensor())
    bomb = deflate(b"N" * 100_000)
    huge = (b"PK\6\6" + struct.pack("<QHHIIQQQQ", 44, 45, 45, 0, 0, 2**40, 2**40, 0, 0)
            + b"PK\6\7" + struct.pack("<IQI", 0, 0, 1))
    cases = {
        "not_a_zip": (b"hello", "no ZIP end record"),
        "old_form": (b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19." + b"\0" * 40,
                     "the form before 1.6"),
        "cut_off": (archive(checkpoint(good))[:-5], "no ZIP end record"),
        "comment_hides_directory": (archive(checkpoint(good), comment=archive([("x", b"1")])[:-22]),
                                    "no ZIP end record"),
        "dotdot_name": (archive(checkpoint(good, ("m/../../x", b"1"))), "\"m/../../x\""),
        "absolute_name": (archive(checkpoint(good, ("/etc/x", b"1"))), "\"/etc/x\""),
        "backslash_name": (archive(checkpoint(good, ("m\\x", b"1"))), "without .., backslash"),
        "nul_name": (archive(checkpoint(good, (b"m/x\0y", b"1"))), "backslash or NUL"),
        "name_twice": (archive(checkpoint(good, ("m/data/0", STORAGE))), "\"m/data/0\" twice"),
        "encrypted": (archive(checkpoint(good, ("m/x", b"1", {"flags": 1}))), "an encrypted entry"),
        "unknown_method": (archive(checkpoint(good, ("m/x", b"1", {"method": 14}))),
                           "compression method 14"),
        "bomb_in_the_header": (
            archive(checkpoint(good, ("m/x", bomb, {"method": 8, "bytes": 2**32 - 2}))),
            "4294967294 bytes, compressed"),
        "bomb_overlapping": (
            archive(checkpoint(good, ("m/data/1", STORAGE), ("m/data/2", STORAGE, {"offset": 0}))),
            "local header of \"m/data/2\""),
        "pickle_larger_than_said": (
            archive([("m/data.pkl", bomb, {"method": 8, "bytes": 10,
                                           "crc": binascii.crc32(b"N" * 10)})]),
            "entry \"m/data.pkl\""),
        "pickle_wrong_crc": (archive([("m/data.pkl", good, {"crc": 1})]), "CRC"),
        "size_beyond_file": (archive(checkpoint(good, ("m/x", b"1", {"bytes": 2}))),
                             "2 bytes stored in 1"),
        "offset_beyond_file": (archive(checkpoint(good, ("m/x", b"1", {"offset": 2**31}))),
                               "header at byte 2147483648"),
        "local_name_differs": (archive(checkpoint(good, ("m/x", b"1", {"local_name": b"m/y"}))),
                               "the same in both"),
        "entries_lie": (archive(checkpoint(good), entries=9), "cut off or damaged"),
        "several_parts": (archive(checkpoint(good), disk=1), "a part of an archive"),
        "entries_zip64_huge": (
            huge + b"PK\5\6" + struct.pack("<HHHHIIH", 0, 0, 65535, 65535, 2**32 - 1, 2**32 - 1, 0),
            "got 1099511627776, expected at most 100000"),
        "torchscript": (archive(checkpoint(good, ("m/code/__torch__.py", b"1"))), "TorchScript"),
        "big_endian": (archive(checkpoint(good, byteorder=b"big")), "expected \"little\""),
        "no_pickle": (archive([("m/data/0", STORAGE)]), "no entry */data.pkl"),
        "two_pickles": (archive(checkpoint(good, ("n/data.pkl", good))), "two entries */data.pkl"),
        "executes": (archive(checkpoint(document(b"cos\nsystem\n" + text(MARK) + b"\x85R"))),
                     "global \"os.system\""),
        "compressed_storage": (
            archive([("m/data.pkl", good),
                     ("m/data/0", deflate(STORAGE),
                      {"method": 8, "bytes": 16, "crc": binascii.crc32(STORAGE)})]),
            "a compressed entry"),
        "storage_missing": (archive(checkpoint(state_dict(w=tensor(key="7")))), "storage \"7\""),
        "storage_key_climbs": (archive(checkpoint(state_dict(w=tensor(key="../byteorder")))),
                               "storage \"../byteorder\""),
        "storage_size_lies": (archive(checkpoint(state_dict(w=tensor(elements=5)))),
                              "expected 5 F32"),
        "tensor_beyond_storage": (archive(checkpoint(state_dict(w=tensor(offset=1)))),
                                  "shape [2,2] from element 1"),
        "tensor_overflow": (
            archive(checkpoint(state_dict(w=tensor(shape=(2**31 - 1,) * 3, strides=(1,) * 3)))),
            "within the 4 of its storage"),
        "tensor_strided": (archive(checkpoint(state_dict(w=tensor(strides=(1, 2))))),
                           "a contiguous tensor"),
        "stride_zero": (archive(checkpoint(state_dict(w=tensor(strides=(0, 1))))), "contiguous"),
        "same_name_after_prefix": (
            archive(checkpoint(state_dict(**{"w": tensor(), "module._orig_mod.w": tensor()}))),
            "\"w\" twice"),
        "not_a_state_dict": (archive(checkpoint(document(b"N"))), "None, expected a state_dict"),
    }
    for name, (data, says) in cases.items():
        add(f"torch/{name}.pt", data, says)


# YAML, CSV, JSON --------------------------------------------------------------------------------

RUN = "data: {seq_len: 64}\nmodel:\n  n_layer: 2\n  n_head: 2\n  n_embd: 8\n  n_ff: 8\n"


def add_yaml():
    laughs = "a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n"
    cases = {
        "anchors": (laughs + RUN, "line 1 of "),
        "executes": ("a: !!python/object/apply:os.system ['%s']\n" % MARK + RUN, "the tag"),
        "merge_key": ("<<: {model: {}}\n" + RUN, "a merge key"),
        "key_twice": (RUN + "  n_layer: 3\n", "\"n_layer\" twice"),
        "two_documents": (RUN + "---\n" + RUN, "several documents"),
        "deep": ("a: " + "[" * 3000, "line 1 of "),
        "deep_blocks": ("".join(" " * i + "a:\n" for i in range(60)), "more than 16 levels"),
        "layers_lie": (RUN.replace("n_layer: 2", "n_layer: 1000000000"), "n_layer in model"),
        "heads_do_not_divide": (RUN.replace("n_head: 2", "n_head: 3"), "a divisor of n_embd"),
        "window_negative": (RUN + "  aah_v3_windows: [-1]\n", "aah_v3_windows in model"),
        "window_nan": (RUN + "  aah_v3_windows: [.nan]\n", "aah_v3_windows in model"),
        "unknown_mode": (RUN + "  aah_v3_controller_choice_mode: eval\n", "got \"eval\""),
        "version_2": (RUN + "  aah_v2_enabled: true\n", "aah_v2_enabled in "),
        "not_utf8": (b"a: \xff\xfe\n", "not UTF-8"),
    }
    for name, (data, says) in cases.items():
        add(f"yaml/{name}.yaml", data, says)


def add_csv():
    head = "regime,layer_id,head_id,final_window_idx,final_window_size,ACR\n"

    def rows(*windows):
        places = [(0, 0), (0, 1), (1, 0), (1, 1)]
        return head + "".join(f"r,{l},{h},0,{w},1\n" for (l, h), w in zip(places, windows))

    cases = {
        "head_missing": (rows(8, 8, 8), "layer 1 head 1 in "),
        "layer_missing": (rows(8, 8), "layer 1 head 0 in "),
        "head_twice": (rows(8, 8, 8, 8) + "r,0,0,0,9,1\n", "again after line 2"),
        "head_beyond": (rows(8, 8, 8, 8) + "r,0,99999999999999999999,0,9,1\n", "line 6 of "),
        "zero": (rows(8, 0, 8, 8), "line 3 of "),
        "negative": (rows(8, 8, -8, 8), "line 4 of "),
        "nan": (rows(8, "nan", 8, 8), "\"nan\""),
        "overflow": (rows(8, 2**31, 8, 8), "\"2147483648\""),
        "open_quote": (rows(8, 8, 8, 8).replace("r,1,1", "\"r,1,1"), "an end inside quotes"),
        "short_row": (rows(8, 8, 8, 8) + "r,1\n", "got 2 fields"),
        "no_columns": ("a;b\n1;2\n", "columns of "),
        "column_twice": ("layer_id," + head, "layer_id twice"),
        "many_columns": ("," * 1000 + "\n", "more columns than the limit"),
        "empty": ("", "an empty file"),
        "native_without_run": (
            "layer_id,head_id,checkpoint_step,final_window_idx\n0,0,1,0\n", "the run's config"),
    }
    for name, (data, says) in cases.items():
        add(f"csv/{name}.csv", data, says)


def add_windows():
    cases = {
        "no_table": ('{"sinks": 0}', "windows in "),
        "one_layer": ('{"windows": [[8, 8]]}', "an array of 2 layers"),
        "three_heads": ('{"windows": [[8, 8], [8, 8, 8]]}', "an array of 2 query heads"),
        "zero": ('{"windows": [[8, 8], [8, 0]]}', "windows[1][1] in "),
        "fraction": ('{"windows": [[8, 8.5], [8, 8]]}', "windows[0][1] in "),
        "overflow": ('{"windows": [[8, 8], [8, 2147483648]]}', "windows[1][1] in "),
        "huge_number": ('{"windows": [[8, 8], [8, 1e999]]}', "windows"),
        "sinks_shape": ('{"windows": [[8, 8], [8, 8]], "sinks": [1]}', "sinks"),
        "sinks_negative": ('{"windows": [[8, 8], [8, 8]], "sinks": -1}', "sinks"),
        "key_twice": ('{"windows": [[8, 8], [8, 8]], "windows": 1}', "twice"),
        "deep": ('{"windows": ' + "[" * 2000, "more than 64 levels"),
        "cut": ('{"windows": [[8, 8]', "a JSON syntax error"),
    }
    for name, (data, says) in cases.items():
        add(f"windows/{name}.json", data, says)


# tokenizer.json ---------------------------------------------------------------------------------


def add_tokenizers():
    def tokenizer(vocab=None, merges=(), pattern=None, **more):
        pre = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
               "use_regex": True}
        if pattern is not None:
            split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated",
                     "invert": False}
            pre = {"type": "Sequence", "pretokenizers": [split, pre]}
        return json.dumps({
            "version": "1.0", "added_tokens": [], "normalizer": None, "pre_tokenizer": pre,
            "post_processor": None, "decoder": {"type": "ByteLevel"},
            "model": {"type": "BPE", "vocab": {"a": 0, "b": 1} if vocab is None else vocab,
                      "merges": list(merges)}, **more})

    where = "regular expression of the pre_tokenizer in tokenizer.json: got "
    cases = {
        "nested_quantifiers": (tokenizer(pattern="(a+)+$"), where + '"$"'),
        "back_reference": (tokenizer(pattern="(a)\\1"), where + '"\\\\1"'),
        "look_behind": (tokenizer(pattern="(?<=a{1,1000})b"), where + '"(?<="'),
        "huge_repeat": (tokenizer(pattern="a{1,1000000000}"), where + '"{1,1000000000}"'),
        "open_group": (tokenizer(pattern="(((((("), where + "a group that is not closed"),
        "merge_of_unknown_tokens": (tokenizer(merges=["x y"]), 'merge 0 in model in tokenizer.json: got "x"'),
        "merge_of_three": (tokenizer(merges=["a b a"]), 'got "a b a", expected two tokens'),
        "id_negative": (tokenizer(vocab={"a": -1}), 'id of "a" of vocab in model in tokenizer.json: got -1'),
        "id_huge": (tokenizer(vocab={"a": 2**62}), "got 4611686018427387904, expected an id"),
        "id_twice": (tokenizer(vocab={"a": 0, "b": 0}), 'got id 0 for "a" and for "b"'),
        "no_model": ('{"version": "1.0"}', "model in tokenizer.json: got nothing"),
        "vocab_is_a_list": (tokenizer(vocab=[["a", 0]]), "got an array of 1"),
        "deep": ('{"model": ' + "[" * 2000, "more than 64 levels"),
        "cut": (tokenizer()[:-10], "JSON syntax error at byte"),
    }
    for name, (data, says) in cases.items():
        add(f"bpe/{name}.json", data, says)


# Folders for the converter ----------------------------------------------------------------------


def add_folders():
    config = {
        "model_type": "llama", "vocab_size": 3, "hidden_size": 4, "intermediate_size": 4,
        "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 2,
        "max_position_embeddings": 16, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
        "bos_token_id": 1, "eos_token_id": 2, "tie_word_embeddings": True,
    }
    layer = "model.layers.0."
    shapes = {
        "model.embed_tokens.weight": [3, 4], "model.norm.weight": [4],
        layer + "input_layernorm.weight": [4], layer + "post_attention_layernorm.weight": [4],
        layer + "self_attn.q_proj.weight": [4, 4], layer + "self_attn.k_proj.weight": [2, 4],
        layer + "self_attn.v_proj.weight": [2, 4], layer + "self_attn.o_proj.weight": [4, 4],
        layer + "mlp.gate_proj.weight": [4, 4], layer + "mlp.up_proj.weight": [4, 4],
        layer + "mlp.down_proj.weight": [4, 4],
    }

    def weights(value=b"\0\0\x80\x3f"):
        header, at = {}, 0
        for name, shape in shapes.items():
            size = 4 * (shape[0] * shape[1] if len(shape) == 2 else shape[0])
            header[name] = entry(shape, at, at + size)
            at += size
        return safetensors(header, value * (at // 4))

    def folder(weight_files=None, index=None, **files):
        out = {"config.json": json.dumps(config)}
        out.update({"model.safetensors": weights()} if weight_files is None else weight_files)
        if index is not None:
            out["model.safetensors.index.json"] = json.dumps({"weight_map": index})
        out.update({name.replace("__", "."): data for name, data in files.items()})
        return out

    for name, content in folder().items():  # no error: what the others differ from
        write(f"good/folder/{name}", content)
    every = dict.fromkeys(shapes, "s.safetensors")
    shard = {"s.safetensors": weights()}

    def with_config(**keys):
        return folder(config__json=json.dumps({**config, **keys}))

    cases = {
        "index_climbs": (folder({}, {**every, "model.norm.weight":
                                     "../../good/folder/model.safetensors"}),
                         "the name of a file in the same folder"),
        "index_absolute": (folder({}, {**every, "model.norm.weight": "/etc/passwd"}),
                           "the name of a file in the same folder"),
        "index_of_absent_file": (folder(shard, {**every, "model.norm.weight": "t.safetensors"}),
                                 "t.safetensors"),
        "index_of_absent_tensor": (folder(shard, {**every, "x": "s.safetensors"}), "\"x\""),
        "index_is_a_list": (folder({}, model__safetensors__index__json="[]"), "a JSON object"),
        "layers_lie": (with_config(num_hidden_layers=2**31 - 1), "layers in config: got 2147483647"),
        "layers_more_than_there_are": (with_config(num_hidden_layers=2), "layers.1.input"),
        "layers_many": (with_config(num_hidden_layers=4096), "no more than the 11 tensors"),
        "vocabulary_lies": (with_config(vocab_size=2**31 - 1), "vocab_size in config: got 2147483647"),
        "vocabulary_large": (with_config(vocab_size=2**24), "\"model.embed_tokens.weight\""),
        "heads_lie": (with_config(num_attention_heads=2**31 - 1, num_key_value_heads=1),
                      "heads in config: got 2147483647"),
        "width_lies": (with_config(hidden_size=2**31 - 1), "hidden_size"),
        "heads_zero": (with_config(num_attention_heads=0), "num_attention_heads in "),
        "heads_negative": (with_config(num_key_value_heads=-1), "num_key_value_heads in "),
        "context_fraction": (with_config(max_position_embeddings=1.5), "max_position_embeddings"),
        "code_in_config": (with_config(model_type="__import__('os')"), "model_type in "),
        "config_deep": (folder(config__json='{"a": ' + "[" * 1000), "more than 64 levels"),
        "config_twice": (folder(config__json='{"vocab_size": 3, "vocab_size": 4}'), "twice"),
        "windows_shape": (folder(windows__json='{"windows": [[8, 8, 8]]}'), "2 query heads"),
        "windows_zero": (folder(windows__json='{"windows": [[8, 0]]}'), "windows[0][1]"),
        "weights_not_finite": (folder({"model.safetensors": weights(b"\0\0\xc0\x7f")}), "nan"),
        "weights_cut": (folder({"model.safetensors": weights()[:-4]}),
                        "the bytes behind the header"),
        "pickled_weights": (folder({"pytorch_model.bin": b"\x80\2cos\nsystem\n."}),
                            "pytorch_model.bin"),
        "end_id_beyond": (with_config(eos_token_id=3), "eos_token_id"),
        "generation_deep": (folder(generation_config__json='{"a": ' + "[" * 1000),
                            "more than 64"),
    }
    for name, (files, says) in cases.items():
        add(f"convert/{name}", files, says)


def main():
    shutil.rmtree(FILES, ignore_errors=True)
    for step in (add_safetensors, add_pickles, add_archives, add_yaml, add_csv, add_windows,
                 add_tokenizers, add_folders):
        step()
    write("good/m.pt", archive(checkpoint(state_dict(w=tensor()))))  # no error either
    (HERE / "expected.tsv").write_text("".join(EXPECTED), encoding="utf-8")


if __name__ == "__main__":
    main()
