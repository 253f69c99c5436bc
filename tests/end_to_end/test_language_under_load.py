"""The language model under load: every reply is the per-example function's, and serving compiles nothing.

In the quick tier XLA's compile budget is cut short, so that some buckets run compiled programs and others plain
ones; in the long tier every bucket has both to choose from.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import orjson
import pytest

from clients.wire import to_json
from loadtest.attack import attack
from loadtest.checking import judge
from loadtest.oracle import expected_document
from loadtest.pacer import ClosedLoop
from loadtest.results import Record
from loadtest.targets import Example, ExampleSet, target
from server.loading import load_models
from tests.support.serving import ROOT, Serving, serving

MODEL = ROOT / "examples" / "language" / "model.py"
MAX_BATCH_SIZE = 64
LONGEST = 60  # characters
WARM_BYTES = 128  # the highest level of lengths that the model's samples ask for

ALPHABETS = (
    "abcdefghijklmnopqrstuvwxyz     ABCDEFGHIJKLMNOPQRSTUVWXYZ.,'?!",
    "aäbcçdeéèêfgğhiıîïjklłmnñoóöøpqrsşśtuüvwxyzžßÅ  ÇŚ",
    "абвгґдеєёжзиіїйклмнопрстуфхцчшщъыьэюя   АБВГДЯ",
    "αβγδεζηθικλμνξοπρστυφχψω άέήίόύώ ς ΑΒΓ",
    "ابتثجحخدذرزسشصضطظعغفقكلمنهوي   ",
    "가나다라마바사아자차카타파하 한국어입니다",
    "日本語中文字漢 あいうえおカキクケコ",
    '😀🚀❤ñ\u0301\u200d0123456789\t\n"\\/<>&',
)


def random_texts(count: int, seed: int) -> list[str]:
    """Texts of 1 to 60 characters, of one alphabet each; one in twenty is empty."""
    generator = np.random.default_rng(seed)
    texts = []
    for number in range(count):
        alphabet = ALPHABETS[number % len(ALPHABETS)]
        length = 0 if number % 20 == 0 else int(generator.integers(1, LONGEST + 1))
        texts.append("".join(alphabet[i] for i in generator.integers(len(alphabet), size=length)))
    return texts


@dataclass(frozen=True)
class Load:
    """A server of the language model, and texts with the replies that are right."""

    server: Serving
    expected: ExampleSet

    def send(self, texts: int, connections: int) -> list[Record]:
        """Posts that many of the texts, some at a time; a wrong reply, or none, fails."""
        log = attack(
            target(self.server.url, "language", self.expected.examples[:texts]), ClosedLoop(texts, connections)
        )
        records = judge(log.exchanges, self.expected)
        assert [record for record in records if record.outcome != "ok"] == []
        return records

    def total(self, name: str, **labels: str) -> float:
        return self.server.metric(name, model="language", **labels)


@pytest.fixture(scope="module")
def expected() -> ExampleSet:
    """500 texts that fit the warm buckets, and after them those that are too long."""
    texts = random_texts(700, seed=1)
    fitting = [text for text in texts if len(text.encode()) <= WARM_BYTES]
    beyond = [text for text in texts if len(text.encode()) > WARM_BYTES]
    assert len(fitting) >= 500
    assert len(beyond) >= 20
    (model,) = load_models(str(MODEL))
    examples = [{"text": text} for text in fitting[:500] + beyond[:20]]
    document = orjson.loads(to_json(expected_document(model, examples)))
    return ExampleSet("language", [Example(**each) for each in document["examples"]], document["dtypes"])


@pytest.fixture(
    scope="module", params=[pytest.param("4", id="mixed"), pytest.param("300", id="xla", marks=pytest.mark.full)]
)
def load(request: pytest.FixtureRequest, expected: ExampleSet) -> Iterator[Load]:
    with serving(MODEL, "--compile-budget-s", request.param) as server:
        yield Load(server, expected)


def test_500_single_posts_get_the_functions_own_answers(load: Load) -> None:
    records = load.send(500, connections=32)
    assert max(record.batch_size for record in records) > 1
    assert load.total("batchd_requests_total", code="200") == 500
    assert load.total("batchd_batch_size_sum") == 500
    assert load.total("batchd_compiles_total", phase="load") > 0
    assert load.total("batchd_compiles_total", phase="serving") == 0
    assert load.total("batchd_cold_batches_total") == 0
    assert load.total("batchd_isolated_rows_total") == 0


def test_texts_longer_than_every_bucket_are_answered_too(load: Load) -> None:
    log = attack(target(load.server.url, "language", load.expected.examples[500:]), ClosedLoop(20, 20))
    records = judge(log.exchanges, ExampleSet("language", load.expected.examples[500:], load.expected.dtypes))
    assert {record.outcome for record in records} == {"ok"}
    assert load.total("batchd_cold_batches_total") > 0
    assert load.total("batchd_compiles_total", phase="serving") == 0


@pytest.mark.full
def test_batches_of_any_size_compile_nothing(load: Load) -> None:
    """A long text keeps the engine busy; what comes meanwhile is a batch, or several where that is faster."""
    seen: set[int | None] = set()
    for size in range(1, MAX_BATCH_SIZE + 1):
        seen |= _batch_sizes(load, size, characters=2000)
    assert len(seen) > 8
    assert load.total("batchd_compiles_total", phase="serving") == 0


def _batch_sizes(load: Load, size: int, characters: int) -> set[int | None]:
    before = load.total("batchd_batch_size_count")
    plug = threading.Thread(target=load.server.predict, args=("language", {"text": "x" * characters}))
    plug.start()
    while load.total("batchd_batch_size_count") == before:
        time.sleep(0.002)
    sizes = {record.batch_size for record in load.send(size, connections=size)}
    plug.join()
    return sizes


def test_the_http_process_has_never_imported_tensorflow(load: Load) -> None:
    maps = Path(f"/proc/{load.server.process.pid}/maps").read_text()
    assert "libpython" in maps or "python" in maps
    assert "tensorflow" not in maps
