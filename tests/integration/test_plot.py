"""tools/plot_context.py: from numbers that are known, and from a short run of the built tool."""

import json
import os
import pathlib
import subprocess
import sys
import unittest
import xml.etree.ElementTree

import support

SCRIPT = pathlib.Path(os.environ["LOOKBACK_SOURCE_DIR"]) / "tools" / "plot_context.py"
SVG = "{http://www.w3.org/2000/svg}"


def plot(*arguments):
    command = [sys.executable, str(SCRIPT), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def row(name, context, tokens_per_s, bytes_per_token):
    return {
        "bench": name,
        "context_tokens": context,
        "sequences": 1,
        "tokens_per_s": tokens_per_s,
        "bytes_per_token": bytes_per_token,
        "stream_bytes_per_s_before": 1e9,
        "stream_bytes_per_s_after": 1e9,
    }


class PlotTest(unittest.TestCase):
    def texts(self, path):
        return [text.text for text in xml.etree.ElementTree.parse(path).iter(f"{SVG}text")]

    def test_saved_numbers_become_a_picture_with_labels(self):
        saved, out = support.FOLDER / "saved.json", support.FOLDER / "drawn.svg"
        benches = []
        for n in (100, 900):
            own = row("own windows", n, [90, 110, 100], 6e6)
            full = row("full windows", n, [50, 40, 45], n * 1e4)
            benches.append({"rows": [own, full]})
        results = {"cpu": "A <CPU> & Co", "command": "lookback bench", "benches": benches}
        saved.write_text(json.dumps(results))
        done = plot("--from", saved, "-o", out)
        self.assertEqual(done.returncode, 0, done.stderr)
        texts = self.texts(out)
        for label in (
            "context, tokens",
            "time a token, ms",
            "own windows",
            "full windows",
            "what the bytes promise",
            "lookback bench",
            "25",  # the slowest run
            "1,000",
        ):
            self.assertIn(label, texts)
        self.assertTrue(any("A <CPU> & Co" in text for text in texts), texts)
        self.assertEqual(sorted(support.FOLDER.glob("drawn.*")), [out])

    def test_a_run_is_drawn_and_kept(self):
        out = support.FOLDER / "run.svg"
        flags = ("--lookback", support.TOOL, "--contexts", "200,40", "-o", out)
        bench = ("--tokens", "2", "--repeat", "2", "--threads", "1")
        done = plot(*flags, support.converted_demo(), *bench)
        self.assertEqual(done.returncode, 0, done.stderr)
        drawn = out.read_text()
        kept = json.loads(out.with_suffix(".json").read_text())
        contexts = [bench["rows"][0]["context_tokens"] for bench in kept["benches"]]
        self.assertEqual(contexts, [200, 40])
        self.assertIn("--threads 1 --context N", kept["command"])
        self.assertIn("own windows", self.texts(out))
        self.assertEqual(plot("--from", out.with_suffix(".json"), "-o", out).returncode, 0)
        self.assertEqual(out.read_text(), drawn)

    def test_what_the_bench_refuses_is_passed_on(self):
        out = support.FOLDER / "none.svg"
        done = plot("--lookback", support.TOOL, "--shape", "gpt-5", "-o", out)
        self.assertEqual(done.returncode, 1)
        self.assertIn("gpt-5", done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1)
        self.assertFalse(out.exists())


if __name__ == "__main__":
    unittest.main()
