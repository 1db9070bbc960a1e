#!/usr/bin/env python3
"""Draws the decode time of a token against the context, with the model's own windows and with every window full.

  tools/plot_context.py --shape aah-1b --weights q8 --compute fast --contexts 512,1024,2048,4000 -o context.svg
  tools/plot_context.py --from context.json -o context.svg      # again, from the numbers kept beside the picture

Flags that are not listed below go to `lookback bench windows`, which runs once a context. A line joins medians; its
band goes from the fastest run to the slowest. Dashed is what the bytes promise: those that a token reads, over the
bandwidth of the memory probe (the median of all probes).
"""

import argparse
import json
import math
import pathlib
import shlex
import statistics
import subprocess
import sys
import textwrap
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 820, 400
LEFT, RIGHT, TOP, BOTTOM = 70, 24, 48, 56  # around the plot
LINE, CAPTION_COLUMNS = 16, 120
COLOURS = {"full windows": "#b3470b", "own windows": "#0b61a4"}  # told apart in grey and by the colour-blind


def run(command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{shlex.join(command)}: exit code {done.returncode}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def measure(lookback, contexts, arguments):
    bench = ["bench", "windows", *arguments]
    return {
        "cpu": run([lookback, "bench", "cpu", "--json"])["cpu"],
        "command": shlex.join(["lookback", *bench, "--context"]) + " N",
        "benches": [run([lookback, *bench, "--json", "--context", str(context)]) for context in contexts],
    }


def series(results):
    """By name: [(context, fastest, median, slowest, promised)], times in ms a token; and the probe's bytes a second."""
    rows = [row for bench in results["benches"] for row in bench["rows"]]
    probe = statistics.median(row[f"stream_bytes_per_s_{when}"] for row in rows for when in ("before", "after"))
    lines = {name: [] for name in COLOURS}
    for row in sorted(rows, key=lambda row: row["context_tokens"]):
        times = [1e3 * row["sequences"] / rate for rate in row["tokens_per_s"]]
        promised = 1e3 * row["sequences"] * row["bytes_per_token"] / probe
        lines[row["bench"]].append((row["context_tokens"], min(times), statistics.median(times), max(times), promised))
    return lines, probe


def ticks(top):
    """Round numbers from 0 to at least `top`, about six."""
    unit = 10 ** math.floor(math.log10(top / 5))
    step = next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= top / 5)
    return [step * i for i in range(math.ceil(top / step) + 1)]


def text(x, y, words, anchor="start", more=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{more}>{escape(words)}</text>'


def path(points, more):
    return f'<path d="M{" L".join(f"{x:.1f},{y:.1f}" for x, y in points)}" {more}/>'


def draw(results):
    lines, probe = series(results)
    points = [point for line in lines.values() for point in line]
    x_ticks = ticks(max(point[0] for point in points))
    y_ticks = ticks(max(max(point[1:]) for point in points))
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM

    def x(context):
        return LEFT + (right - LEFT) * context / x_ticks[-1]

    def y(milliseconds):
        return bottom - (bottom - TOP) * milliseconds / y_ticks[-1]

    caption = textwrap.wrap(
        f"{results['cpu']}. Lines: medians; bands: fastest to slowest run; dashed: what the bytes promise, bytes a "
        f"token over the {probe / 1e9:.1f} GB/s of the memory probe.",
        CAPTION_COLUMNS,
    )
    caption += textwrap.wrap(results["command"], CAPTION_COLUMNS)
    height = HEIGHT + LINE * (len(caption) + 0.5)
    # A ground of its own: the page may be light or dark.
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height:g}" viewBox="0 0 {WIDTH} {height:g}" '
        'font-family="system-ui, sans-serif" font-size="13" fill="#24292f">',
        "<title>Decode time of a token against the context</title>",
        f'<rect width="{WIDTH}" height="{height:g}" rx="8" fill="#ffffff"/>',
    ]
    for tick in y_ticks:
        out.append(path([(LEFT, y(tick)), (right, y(tick))], 'stroke="#d8dee4"'))
        out.append(text(LEFT - 8, y(tick) + 4, f"{tick:g}", "end"))
    for tick in x_ticks:
        out.append(path([(x(tick), bottom), (x(tick), bottom + 5)], 'stroke="#57606a"'))
        out.append(text(x(tick), bottom + 20, f"{tick:,g}", "middle"))
    out.append(text((LEFT + right) / 2, bottom + 42, "context, tokens", "middle"))
    out.append(text(0, 0, "time a token, ms", "middle", f' transform="translate(20 {(TOP + bottom) / 2}) rotate(-90)"'))
    for name, line in lines.items():
        band = [(x(p[0]), y(p[1])) for p in line] + [(x(p[0]), y(p[3])) for p in reversed(line)]
        out.append(path(band, f'fill="{COLOURS[name]}" fill-opacity="0.18"'))
    for i, (name, line) in enumerate(lines.items()):
        colour = COLOURS[name]
        out.append(path([(x(p[0]), y(p[4])) for p in line], f'fill="none" stroke="{colour}" stroke-dasharray="5 4"'))
        out.append(path([(x(p[0]), y(p[2])) for p in line], f'fill="none" stroke="{colour}" stroke-width="2.5"'))
        out += [f'<circle cx="{x(p[0]):.1f}" cy="{y(p[2]):.1f}" r="3.5" fill="{colour}"/>' for p in line]
        at = LEFT + 180 * i
        out.append(path([(at, 25), (at + 28, 25)], f'stroke="{colour}" stroke-width="2.5"'))
        out.append(text(at + 36, 29, name))
    at = LEFT + 180 * len(lines)
    out.append(path([(at, 25), (at + 28, 25)], 'stroke="#57606a" stroke-dasharray="5 4"'))
    out.append(text(at + 36, 29, "what the bytes promise"))
    for i, words in enumerate(caption):
        out.append(text(LEFT, HEIGHT + LINE * (i + 0.5), words, more=' font-size="11" fill="#57606a"'))
    return "\n".join([*out, "</svg>"]) + "\n"


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--contexts", default="512,1024,2048,4000", help="tokens in the cache (default: %(default)s)")
    parser.add_argument("--from", dest="saved", type=pathlib.Path, metavar="JSON", help="draw these, measure nothing")
    parser.add_argument("-o", "--out", type=pathlib.Path, required=True, metavar="SVG")
    parser.add_argument("--lookback", default="build/release/bin/lookback")
    args, bench = parser.parse_known_args()
    if args.saved:
        results = json.loads(args.saved.read_text())
    else:
        results = measure(args.lookback, [int(context) for context in args.contexts.split(",")], bench)
        args.out.with_suffix(".json").write_text(json.dumps(results, indent=1) + "\n")
    args.out.write_text(draw(results))


if __name__ == "__main__":
    main()
