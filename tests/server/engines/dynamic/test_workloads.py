"""The dynamic engines on the workloads of the benchmark: every answer is the reference's, and few launches do it."""

import numpy as np
import pytest

from loadtest.workloads import NAMES, workload
from tests.support.dynamic_engines import engine_of


def run(kind, name, count, seed=0):
    found = workload(name)
    engine = engine_of(kind, found.function, **found.specs)
    examples = found.examples(np.random.default_rng(seed), count)
    result = engine.run(examples, engine.buckets()[-1].bucket)
    assert not result.stats.failure
    assert result.stats.isolated == 0
    assert found.problem.difference(result.rows, [found.reference(*example) for example in examples]) is None
    return result.stats


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", ["dynamic", "dynamic_hybrid", pytest.param("dynamic_depth", marks=pytest.mark.full)])
def test_answers(name, kind):
    run(kind, name, 5)


def test_a_tree_takes_as_many_launches_as_it_is_deep_whatever_the_batch():
    few, many = (run("dynamic_hybrid", "tree_lstm", count).launches for count in (4, 32))
    assert many <= few + 6
    assert run("dynamic", "tree_lstm", 32).launches < 250


def test_times_add_up():
    stats = run("dynamic", "lstm", 8)
    assert stats.padding_ratio == 0
    assert stats.rows_padded == 0
    parts = stats.build_s + stats.schedule_s + stats.gather_s
    assert stats.assembly_s == pytest.approx(parts)
    assert min(stats.build_s, stats.schedule_s, stats.gather_s, stats.compute_s, stats.split_s) > 0
