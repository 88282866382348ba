#!/usr/bin/env python3
"""Writes tests/data/gguf/blocks.json: seeded blocks of every weight type and what gguf-py decodes.

Needs numpy and gguf. Values are f32 bit patterns in hex, so a reader can compare bit for bit.
"""

import argparse
import json
import pathlib

import numpy as np
from gguf import GGMLQuantizationType, quants

TYPES = ["F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"] + [
    "Q2_K",
    "Q3_K",
    "Q4_K",
    "Q5_K",
    "Q6_K",
    "IQ4_NL",
]
SCALE_OFFSETS = {
    **{"Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "IQ4_NL": [0]},
    **{"Q2_K": [80, 82], "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208]},
}
BLOCK_BYTES = {
    **{"F32": 128, "F16": 64, "BF16": 64, "Q4_0": 18, "Q4_1": 20, "Q5_0": 22, "Q5_1": 24},
    **{"Q8_0": 34, "Q2_K": 84, "Q3_K": 110, "Q4_K": 144, "Q5_K": 176, "Q6_K": 210, "IQ4_NL": 18},
}


def seeded_blocks(name: str, rng: np.random.Generator) -> np.ndarray:
    """Three blocks: the first two with finite scales, the third random throughout."""
    blocks = rng.integers(0, 256, size=(3, BLOCK_BYTES[name]), dtype=np.uint8)
    for offset in SCALE_OFFSETS.get(name, []):
        scales = rng.normal(0, 0.1, size=2).astype(np.float16)
        blocks[:2, offset : offset + 2] = scales.view(np.uint8).reshape(2, 2)
    return blocks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=pathlib.Path, default="tests/data/gguf/blocks.json")
    args = parser.parse_args()
    rng = np.random.default_rng(20240)
    goldens = {}
    for name in TYPES:
        raw = seeded_blocks(name, rng).reshape(-1)
        with np.errstate(all="ignore"):
            # gguf-py reads F32 and F16 rows through views of those dtypes.
            view = {"F32": np.float32, "F16": np.float16}.get(name, np.uint8)
            values = quants.dequantize(raw.view(view), GGMLQuantizationType[name])
        bits = np.ascontiguousarray(values, dtype=np.float32).reshape(-1).view(np.uint32)
        goldens[name.lower()] = {
            "bytes": raw.tobytes().hex(),
            "f32": "".join(f"{b:08x}" for b in bits),
        }
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(goldens, indent=0) + "\n")


if __name__ == "__main__":
    main()
