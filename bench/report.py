"""Figures of a comparison: medians, spreads, verdicts, and how they read as text and as a page."""

import dataclasses
import statistics
from typing import Any

UNITS = {"tok/s": "tokens/s", "s": "s", "MiB": "MiB"}


@dataclasses.dataclass
class Metric:
    """Pairs of one figure. `ratio` above 1 always means that Cuvil is better."""

    name: str
    unit: str
    peer_threads: int
    cuvil: list[float] = dataclasses.field(default_factory=list)
    peer: list[float] = dataclasses.field(default_factory=list)
    noisy: int = 0  # pairs kept although other processes were busy
    spread_matters: bool = True

    def add(self, cuvil: float, peer: float, noisy: bool) -> None:
        self.cuvil.append(cuvil)
        self.peer.append(peer)
        self.noisy += noisy

    def ratios(self) -> list[float]:
        more_is_better = self.unit == "tok/s"
        pairs = zip(self.cuvil, self.peer, strict=True)
        return [c / p if more_is_better else p / c for c, p in pairs]

    def peer_spread(self) -> float:
        return (max(self.peer) - min(self.peer)) / statistics.median(self.peer)

    def problems(self, wanted: int, spread_limit: float) -> list[str]:
        """Why the figure is not to be believed; empty when it is."""
        out = []
        if len(self.cuvil) < wanted:
            out.append(f"only {len(self.cuvil)} of {wanted} pairs were undisturbed")
        if self.noisy:
            out.append(f"{self.noisy} pairs were disturbed by other processes")
        if self.peer and self.spread_matters and self.peer_spread() > spread_limit:
            out.append(f"llama.cpp's own figures spread by {self.peer_spread():.0%}")
        return out

    def json(self, wanted: int, spread_limit: float) -> dict[str, Any]:
        out: dict[str, Any] = {"unit": self.unit, "peer_threads": self.peer_threads}
        out |= {"cuvil": self.cuvil, "peer": self.peer}
        out["problems"] = self.problems(wanted, spread_limit)
        if self.cuvil:
            ratios = self.ratios()
            out["cuvil_median"] = statistics.median(self.cuvil)
            out["peer_median"] = statistics.median(self.peer)
            out["ratio"] = statistics.median(ratios)
            out["ratio_min"], out["ratio_max"] = min(ratios), max(ratios)
            out["peer_spread"] = self.peer_spread()
        return out


def _number(value: float, unit: str) -> str:
    return f"{value:.3f}" if unit == "s" else f"{value:.0f}" if value >= 100 else f"{value:.1f}"


def _cells(name: str, metric: dict[str, Any]) -> list[str]:
    if "ratio" not in metric:
        return [name, "-", "-", "-", "-", "-", "; ".join(metric["problems"])]
    unit = metric["unit"]
    return [
        f"{name} ({UNITS[unit]})",
        _number(metric["cuvil_median"], unit),
        _number(metric["peer_median"], unit),
        str(metric["peer_threads"]),
        f"{metric['ratio']:.2f}",
        f"{metric['ratio_min']:.2f} to {metric['ratio_max']:.2f}",
        "; ".join(metric["problems"]) or "ok",
    ]


HEADINGS = ["", "Cuvil", "llama.cpp", "its threads", "ratio", "spread", "verdict"]


def text(result: dict[str, Any]) -> str:
    rows = [HEADINGS, *(_cells(n, m) for n, m in result["metrics"].items())]
    widths = [max(len(row[i]) for row in rows) for i in range(len(HEADINGS))]
    lines = [
        "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
    first = result.get("first_start")
    if first is not None:
        lines.append(f"first start, empty cache: {first['first_token_s']:.3f} s to the first token")
    check = result.get("greedy_check")
    if check is not None:
        lines.append("greedy check: " + ("equal" if check["equal"] else "DIFFERENT TOKENS"))
    return "\n".join(lines)


def _table(rows: list[list[str]]) -> list[str]:
    head = ["| " + " | ".join(rows[0]) + " |", "| " + " | ".join("---" for _ in rows[0]) + " |"]
    return head + ["| " + " | ".join(row) + " |" for row in rows[1:]]


def _machine_rows(result: dict[str, Any]) -> list[str]:
    machine = result["machine"]
    versions = result["versions"]
    lines = [
        f"- Date: {result['date']}",
        f"- CPU: {machine['cpu']}, {machine['cores']} cores",
        f"- Memory: {machine['memory_gib']:.1f} GiB",
        f"- Features Cuvil uses: {' '.join(machine['features']) or 'not reported'}",
        f"- Memory read rate, all threads: {machine['read_gb_s']:.1f} GB/s",
        f"- Kernel: {machine['kernel']}",
        f"- Cuvil: {versions['cuvil']}, commit {versions['commit']}",
        f"- llama.cpp: through llama-cpp-python {versions['llama_cpp_python']}; "
        f"{versions['llama_cpp_system']}",
        f"- Model: {result['model']['name']}, {result['model']['bytes']} bytes",
    ]
    return lines


def _quality(quality: dict[str, Any]) -> list[str]:
    rows = [["text", "who", "tokens a step", "mean KL", "max KL", "argmax flips", "perplexity"]]
    for r in quality["runs"]:
        flips = f"{r['argmax_flips']} of {r['scored']}"
        kl = [f"{r['mean_kl']:.2e}", f"{r['max_kl']:.2e}"]
        rows.append([r["text"], r["who"], str(r["chunk"]), *kl, flips, f"{r['ppl']:.3f}"])
    reference = ", ".join(f"{n} {p:.3f}" for n, p in quality["reference_ppl"].items())
    return ["", "## Distance to a float32 forward", "", *_table(rows), ""] + [
        f"Perplexity of the float32 forward: {reference}. Measured by `bench/quality.py`."
    ]


_HOW = """\
Every row is the median of {pairs} interleaved pairs, Cuvil then llama.cpp, on the same file, with
random tokens that do not repeat, greedy choice, no prefix reuse and no speculation. The ratio is
above 1 where Cuvil is better, for rates, times and memory alike; its spread is the smallest and the
largest of the pairs. llama.cpp runs with the better of {threads} threads, found anew for each row.
Pairs in which other processes used more than {noise:.0%} of the CPU are measured again, and a row
in which llama.cpp's own figures spread by more than {spread:.0%} is not believed.

- *decode*: one sequence, {generate} tokens after a context of {context}.
- *prefill*: one prompt of {prompt} tokens; logits of the last only.
- *streams N*: N sequences with prompts of {stream_prompt} tokens each, decoded in one batch; all
  their tokens per second.
- *first token*: a fresh process, model file and kernels cached, prompt of {first_prompt} tokens.
  Cuvil's time counts from the start of its process; llama.cpp's from before it opens the model:
  starting Python, its imports and loading the shared library are left out.
- *whole process*: the same run of Cuvil from spawn to exit, against the same time of llama.cpp.
- *peak memory*: resident, for a prompt of {memory_prompt} tokens, the mapped model file included.
  From llama.cpp's, what Python held after its imports is taken off."""


def page(result: dict[str, Any], quality: dict[str, Any] | None) -> str:
    rows = [HEADINGS, *(_cells(n, m) for n, m in result["metrics"].items())]
    lines = ["# Performance", "", "<!-- Written by bench/compare.py --write; edit that. -->", ""]
    lines += ["## Against llama.cpp", "", *_table(rows), ""]
    first, check = result.get("first_start"), result.get("greedy_check")
    if first is not None:
        lines += [
            f"First start with an empty cache of compiled kernels: {first['first_token_s']:.3f} s "
            f"to the first token, {first['compile_s']:.3f} s of it compiling (median of "
            f"{first['runs']}).",
            "",
        ]
    if check is not None:
        same = "equal" if check["equal"] else "DIFFER FROM"
        lines += [f"The greedy tokens of `cuvil bench` {same} those of `cuvil run`.", ""]
    lines += ["## How it was measured", "", "    " + result["command"], ""]
    lines += [_HOW.format(**result["method"]), "", *_machine_rows(result)]
    if quality is not None:
        lines += _quality(quality)
    return "\n".join(lines) + "\n"
