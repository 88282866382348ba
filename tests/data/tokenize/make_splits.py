"""Writes splits.json: how the published regular expressions cut texts, per pre-tokenizer.

    python3 tests/data/tokenize/make_splits.py > tests/data/tokenize/splits.json

The expressions are those of the models' tokenizer.json files, run by the `tokenizers` package.
"""

import argparse
import json
import random
import sys

from tokenizers import Regex, pre_tokenizers

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN35 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
LEAD = r"[^\r\n\p{L}\p{N}]?"
SUFFIX = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
REST = r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
GPT4O = f"{LEAD}{UPPER}*{LOWER}+{SUFFIX}|{LEAD}{UPPER}+{LOWER}*{SUFFIX}|\\p{{N}}{{1,3}}{REST}"
TEKKEN = f"{LEAD}{UPPER}*{LOWER}+|{LEAD}{UPPER}+{LOWER}*|\\p{{N}}{REST}"
DEEPSEEK3 = (
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
BLOOM = r" ?[^(\s|.,!?…。，、।۔،)]+"
PUNCTUATION = r"[\p{P}\$\+<=>\^~\|]+"
DIGITS3 = r"[0-9][0-9][0-9]"

RULES: dict[str, list[str]] = {
    "gpt-2": [GPT2],
    "smollm": [r"\p{N}", GPT2],
    "llama-bpe": [LLAMA3],
    "qwen2": [LLAMA3.replace("{1,3}", "")],
    "qwen35": [QWEN35],
    "gpt-4o": [GPT4O],
    "tekken": [TEKKEN],
    "deepseek-v3": [r"\p{N}{1,3}", "[一-龥\u3040-ゟ゠-ヿ]+", DEEPSEEK3],
    "deepseek-coder": [r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-\ud7ff]+", r"\p{N}"],
    "falcon": [r"[\p{P}\$\+<=>\^~\|`]+", GPT2, DIGITS3],
    "viking": [BLOOM, r"\p{N}"],
    "default": [PUNCTUATION, GPT2, r"\p{N}+", DIGITS3],
}

TEXTS = [
    "Hello, world! It's 2024; I'LL pay $1,234.50 (or 7%).",
    "don't  stop\n\n  now \t x\r\n\r\n end   ",
    "camelCase HTTPServer XMLHttpRequest's ÉcoleNormale ǅungla ªºA",
    "naïve café — “quotes” …  ’s ''s 's 'S",
    "日本語とカタカナ、漢字。混合mixed文字 한국어 텍스트",
    "Привет мир שלום العَرَبِيَّة हिन्दी ไทย",
    "a\u0300\u0301 \u0301x Z\u0337\u0322 🙂👍🏽 👩‍👧 ❤️ ☺",
    "٣٤٥ १२३ ①② ½ 12345678901 1e-10 0x1F v1.2.3",
    'x = {"k": [1, 2]}; // c\n\tif (a && !b) {\n\t\treturn `t`;\n\t}\n',
    "https://example.com/a?b=c&d=%20#e user@host path/to/file.txt \\n",
    "\u00a0nbsp\u2003em\u3000wide\u0085nel\u200bzw\x00\x1b[0m\u2028ls",
    "   ",
    "\n",
    " \n ",
    "\r\n",
    "a",
    " a",
    "1",
    " 1",
    "!",
    " !",
    "  !!\n\n x",
    "'",
    "''",
    "' s",
    "/ /\n//\n a/b",
    "\n\n\na",
    " \n\n a",
    "a \n",
    "।,hi। ok",
]
ALPHABET = list(
    "aAzZ  \n\r\t'sStTlLdDmMrReEvV019!?.,/-_$+`~日あ가éÉªǅ\u0301\u0301٣½ \u00a0🙂\u200b(|"
)


def cut(text: str, expressions: list[str]) -> list[str]:
    """The pieces of a text after all splits."""
    stages = [pre_tokenizers.Split(Regex(expression), "isolated") for expression in expressions]
    return [piece for piece, _ in pre_tokenizers.Sequence(stages).pre_tokenize_str(text)]


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    rng = random.Random(7)
    texts = TEXTS + ["".join(rng.choices(ALPHABET, k=rng.randint(2, 24))) for _ in range(120)]
    out = {"texts": texts, "splits": {}}
    for name, expressions in RULES.items():
        # Ends in characters: shorter than the pieces.
        ends = []
        for text in texts:
            at = 0
            row = []
            for piece in cut(text, expressions):
                at += len(piece)
                row.append(at)
            assert at == len(text), (name, text)
            ends.append(row)
        out["splits"][name] = ends
    json.dump(out, sys.stdout, ensure_ascii=True, separators=(",", ":"))
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
