"""Trains a tiny SentencePiece BPE model and writes it, with its own ids for texts, to spm.json.

    python3 tests/data/tokenize/make_spm.py > tests/data/tokenize/spm.json

No text begins with a user-defined token: there SentencePiece puts a prefix in front, which the
libraries that run chat models do not, and neither do we.
"""

import argparse
import io
import json
import random
import sys

import sentencepiece

WORDS = (
    "the quick brown fox jumps over a lazy dog and then it runs back to its den where small foxes "
    "wait for food that is brought every evening when light fades slowly behind old hills"
).split()

TEXTS = [
    "",
    " ",
    "  ",
    "a",
    " a",
    "the quick brown fox",
    "The lazy dog.",
    "  two  spaces  ",
    "foxes\nrun\tfast",
    "naïve café",
    "日本語",
    "🙂 ok 👩‍👧",
    "e\u0301",
    "thethethethe",
    "unknownwordxyz",
    "<s> </s> <unk>",
    "x\u2581literal",
    "a<tag>b",
    "fox<tag>",
    "fox  <tag> the<tag>  fox ",
    "x" * 60,
    "0123456789",
    "\x00\x7f",
    "it's",
]


def train(remove_spaces: bool, prefix: bool) -> bytes:
    """A model's bytes."""
    rng = random.Random(3)
    lines = [" ".join(rng.choices(WORDS, k=8)) for _ in range(400)]
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=out,
        vocab_size=420,
        model_type="bpe",
        byte_fallback=True,
        character_coverage=1.0,
        normalization_rule_name="identity",
        add_dummy_prefix=prefix,
        remove_extra_whitespaces=remove_spaces,
        user_defined_symbols=["<tag>"],
        minloglevel=2,
        num_threads=1,
        hard_vocab_limit=False,
    )
    return out.getvalue()


def describe(remove_spaces: bool, prefix: bool) -> dict[str, object]:
    """The vocabulary as GGUF carries it, and the goldens."""
    model = sentencepiece.SentencePieceProcessor(model_proto=train(remove_spaces, prefix))
    kinds = []
    for i in range(model.vocab_size()):
        kind = 1
        if model.is_unknown(i):
            kind = 2
        elif model.is_control(i):
            kind = 3
        elif model.is_byte(i):
            kind = 6
        elif model.is_unused(i):
            kind = 5
        elif model.id_to_piece(i) == "<tag>":
            kind = 4
        kinds.append(kind)
    cases = [
        {"text": t, "ids": model.encode(t), "decoded": model.decode(model.encode(t))} for t in TEXTS
    ]
    return {
        "remove_extra_whitespaces": remove_spaces,
        "add_space_prefix": prefix,
        "tokens": [model.id_to_piece(i) for i in range(model.vocab_size())],
        "scores": [model.get_score(i) for i in range(model.vocab_size())],
        "types": kinds,
        "cases": cases,
    }


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    models = [describe(False, True), describe(True, True), describe(False, False)]
    json.dump(models, sys.stdout, ensure_ascii=True, separators=(",", ":"))
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
