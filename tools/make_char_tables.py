#!/usr/bin/env python3
"""Writes engine/tokenizer/char_tables.inc: what the tokenizers library takes each code point for.

    pip install tokenizers==0.23.3 && python3 tools/make_char_tables.py

The library is asked, character by character: its parts know Unicode in different versions (the split
patterns 16, the Digits pre-tokenizer 17, NFC 9), and a tokenizer has to follow it in each.
"""

import pathlib

from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers

BLOCK = 128
LETTER, NUMBER, SPACE = 1, 2, 3
DIGIT, WORD, NFC = 4, 8, 16
CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
# Two bits that no property uses make every value a printable character: the table is a string.
PRINTABLE = 0x60


def removed_by(pre_tokenizer):
    """The code points that `pre_tokenizer` leaves out of its pieces."""
    left = set()
    for begin in range(0, len(CODE_POINTS), 4096):
        text = "".join(map(chr, CODE_POINTS[begin : begin + 4096]))
        for piece, _ in pre_tokenizer.pre_tokenize_str(text):
            left.update(map(ord, piece))
    return set(CODE_POINTS) - left


def matching(pattern):
    return removed_by(pre_tokenizers.Split(Regex(pattern), "removed"))


def digits():
    # Each digit is a piece of its own, everything between two of them another.
    pre_tokenizer = pre_tokenizers.Digits(individual_digits=True)
    return {c for c in CODE_POINTS if len(pre_tokenizer.pre_tokenize_str(f"x{chr(c)}x")) == 3}


def word_characters():
    # A single_word token is not matched beside them.
    tokenizer = Tokenizer(models.BPE(vocab={}, merges=[]))
    tokenizer.add_tokens([AddedToken("#@#", single_word=True)])
    return {c for c in CODE_POINTS if not tokenizer.encode(chr(c) + "#@#").ids}


def nfc_characters():
    """What takes part in NFC: marks that are reordered, what decomposes, what composes."""
    decompose = normalizers.NFD().normalize_str
    active = set()
    for c in CODE_POINTS:
        parts = decompose(chr(c))
        if parts != chr(c):
            active.add(c)
            active.update(map(ord, parts))
        # U+0334 has class 1, U+0301 class 230: whoever changes places with one of them is a mark.
        elif decompose(chr(c) + "\u0334")[0] == "\u0334" or decompose("\u0301" + chr(c))[0] == chr(c):
            if c not in (0x334, 0x301):
                active.add(c)
    return active | {0x334, 0x301}


def properties():
    table = bytearray([PRINTABLE]) * 0x110000
    for members, value in (
        (matching(r"\p{L}"), LETTER),
        (matching(r"\p{N}"), NUMBER),
        (matching(r"\s"), SPACE),
        (digits(), DIGIT),
        (word_characters(), WORD),
        (nfc_characters(), NFC),
    ):
        for c in members:
            table[c] |= value
    return table


def main():
    table = properties()
    end = max(c for c in CODE_POINTS if table[c] != PRINTABLE) // BLOCK * BLOCK + BLOCK
    blocks, index = {}, []
    for begin in range(0, end, BLOCK):
        block = bytes(table[begin : begin + BLOCK])
        index.append(blocks.setdefault(block, len(blocks)))
    lines = [
        "// Made by tools/make_char_tables.py from the tokenizers library 0.23.3. Not to be edited.",
        f"const char32_t kEnd = 0x{end:X};",
        f"const uint16_t kBlocks[{len(index)}] = {{",
    ]
    line = ""
    for number in index:
        item = f"{number},"
        if len(line) + len(item) > 98:
            lines.append(line)
            line = ""
        line += item
    lines += [line, "};", f"const char kProperties[{len(blocks) * BLOCK + 1}] ="]
    for block in blocks:
        text = block.decode("ascii")
        lines += [f'"{text[:64]}"', f'"{text[64:]}"']
    lines[-1] += ";"
    target = pathlib.Path(__file__).parent.parent / "engine/tokenizer/char_tables.inc"
    target.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
