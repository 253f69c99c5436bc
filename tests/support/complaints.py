"""25 public complaints about batching servers, and the tests that show that they can't be made about batchd.

A test says which by `@pytest.mark.complaint(n)`. The page is generated: `python -m tests.support.complaints`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "complaints.md"

COMPLAINTS = {
    1: ("one request's error goes to every caller of its batch", "LitServe#340"),
    2: ("nobody can trust that an answer is the answer to its own request", "pytorch/serve#1329"),
    3: ("an error in the batching itself ends it, and later requests hang", "ray#66140"),
    4: ("callers that cancel wedge the queue for good", "ray#50046, ray#41057"),
    5: ("what nobody waits for any more is computed all the same", "LitServe#165; triton#7532, #6920"),
    6: ("a deadline is noticed only when the running batch ends", "triton#7512"),
    7: ("examples of different lengths never share a batch", "triton#8156, #3395, #270, #6937, #6984"),
    8: ("zeros that pad short sequences change their answers", "tensor2tensor#1489; BentoML#2913"),
    9: ("a request whose examples differ in length is refused", "tensorflow/serving#1538, #1934, #530"),
    10: ("inputs without a batch dimension can't be batched", "tensorflow/serving#494, #1036, #1682"),
    11: ("a model that can't be batched is found out under load", "triton#5334; tensorflow/serving#276, #1305"),
    12: ("taking a batch apart gives one caller too much and others nothing", "MLServer#1306, #903, #1718, #514"),
    13: ("a lone request waits the whole delay for company", "pytorch/serve#67, #1699; kserve#1666"),
    14: ("a single request is padded to a large batch, and nothing says so", "tensorflow/serving#1529"),
    15: ("batches run in sizes that weren't asked for", "triton#8141, #3116, #7604"),
    16: ("the first request of each size takes seconds", "triton#7776, #4503, #5326; tensorflow/serving#385"),
    17: ("a request larger than a batch is refused, or runs out of memory", "triton#4547, #4363; BentoML#3710"),
    18: ("the queue grows until the server falls over", "triton#914, #980; ray#22670; pytorch/serve#2333"),
    19: ("waiting is taken for computing, so that sizes are wrong", "clipper#222; BentoML#3200"),
    20: ("a late request gets a made-up answer, with success", "clipper#118, #744"),
    21: ("a stop is ignored, or loses requests", "tensorflow/serving#1853; triton#6230; pytorch/serve#2008"),
    22: ("there are no latency histograms that can be added up", "triton#3060, #7672; tensorflow/serving#1624"),
    23: ("nobody can tell whether, how and why requests were batched", "triton#2811, #5205, #5802, #6421"),
    24: ("each scrape of the metrics reaches another process", "kserve#2979; litellm#10595"),
    25: ("NaN and infinities make invalid JSON or an error", "pytorch/serve#1304; triton#3711"),
}
"""Number: what was complained about, in our words, and where."""


@dataclass(frozen=True, order=True)
class MarkedTest:
    """A test that carries the mark: where it stands, and the numbers that it names."""

    file: str
    name: str
    numbers: tuple[int, ...]


def marked_tests() -> Iterator[MarkedTest]:
    """Every test function with the mark, read from the files, so that nothing is imported."""
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        text = path.read_text(encoding="utf-8")
        if "mark.complaint(" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                for decorator in node.decorator_list:
                    if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "pytest.mark.complaint":
                        numbers = tuple(ast.literal_eval(argument) for argument in decorator.args)
                        yield MarkedTest(path.relative_to(ROOT).as_posix(), node.name, numbers)


def markdown() -> str:
    """Returns the page."""
    tests = sorted(marked_tests())
    lines = [
        "# What users of other servers complained about",
        "",
        "Public complaints about batching servers, in our words, and the tests that show that batchd gives no cause",
        "for them. Generated from the tests' marks: `python -m tests.support.complaints > docs/complaints.md`.",
        "",
        "| | complaint | made at | tests |",
        "|---|---|---|---|",
    ]
    for number, (complaint, where) in COMPLAINTS.items():
        of_this = [f"[`{test.name}`](../{test.file})" for test in tests if number in test.numbers]
        lines.append(f"| {number} | {complaint} | {where} | {'<br>'.join(of_this)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(markdown(), end="")
