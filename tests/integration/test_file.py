"""The converted file opens in the safetensors package and holds what format.md says."""

import hashlib
import json
import unittest

import numpy
import safetensors
from safetensors import safe_open

import support


class FileTest(unittest.TestCase):
    def test_the_converted_demo_opens_in_the_safetensors_package(self):
        path = support.converted_demo()
        with safe_open(path, framework="numpy") as converted:
            metadata = converted.metadata()
            names = set(converted.keys())
            tokenizer = converted.get_tensor("lookback.tokenizer")
        self.assertEqual(metadata["format"], "lookback")
        self.assertEqual(metadata["format_version"], "1")
        windows = json.loads((support.DEMO / "windows.json").read_text())["windows"]
        self.assertEqual(json.loads(metadata["windows"])["windows"], windows)
        self.assertEqual(
            tokenizer.tobytes(), (support.DEMO / "tokenizer.model").read_bytes()
        )
        with safe_open(support.DEMO / "model.safetensors", framework="numpy") as source:
            for name in source.keys():
                self.assertIn(name, names)
        self.assertTrue(safetensors.__version__)

    def test_every_tensor_keeps_its_bytes_and_is_aligned(self):
        converted = support.converted_demo().read_bytes()
        source = (support.DEMO / "model.safetensors").read_bytes()

        def tensors(data):
            size = int.from_bytes(data[:8], "little")
            header = json.loads(data[8 : 8 + size])
            header.pop("__metadata__", None)
            return header, 8 + size

        got, base = tensors(converted)
        expected, source_base = tensors(source)
        for name, entry in got.items():
            if not name.startswith("lookback.pad."):
                self.assertEqual((base + entry["data_offsets"][0]) % 64, 0, name)
        for name, entry in expected.items():
            mine = got[name]
            if mine["dtype"] != entry["dtype"]:
                continue  # vectors are widened to F32
            digest = [
                hashlib.sha256(data[at + e["data_offsets"][0] : at + e["data_offsets"][1]]).digest()
                for data, at, e in ((converted, base, mine), (source, source_base, entry))
            ]
            self.assertEqual(digest[0], digest[1], name)
        self.assertGreater(numpy.prod(got["model.embed_tokens.weight"]["shape"]), 0)


if __name__ == "__main__":
    unittest.main()
