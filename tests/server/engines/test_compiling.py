"""Compiling: the cache's place and flags, the watch's counts, the static engine's choices."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import tensorflow as tf

from server.engines import build_engine, compile_cache
from server.engines.compile_cache import cache_directory, enable_cache, open_private_copy, publish
from server.engines.compile_watch import CompileWatch
from server.engines.device import set_up_device
from server.engines.samples import draw_samples
from server.engines.settings import EngineSettings
from server.errors import ModelLoadError
from server.loading import load_models

ROOT = Path(__file__).parents[3]
SERVICES = ROOT / "tests" / "services"


def test_the_watch_counts_traces_and_not_calls():
    watch = CompileWatch()

    @tf.function
    def double(x):
        return 2 * x

    double(tf.constant(1.0))
    assert watch.count() > 0
    watch.reset()
    double(tf.constant(2.0))
    assert watch.count() == 0
    double(tf.constant([1.0]))
    assert watch.count() > 0


def test_the_watch_counts_new_files_in_the_cache(tmp_path):
    watch = CompileWatch(tmp_path)
    assert watch.count() == 0
    (tmp_path / "compiled.pb").write_text("x")
    os.utime(tmp_path, ns=(1, 1))
    assert watch.count() == 1
    watch.reset()
    assert watch.count() == 0


def test_the_cache_has_a_directory_for_each_model_and_keeps_the_users_flags(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    a, b = cache_directory("model.py", "a"), cache_directory("model.py", "b")
    assert a != b
    assert a.is_relative_to(tmp_path / "batchd" / "xla")
    assert a.parent.name.startswith("tf2.")
    environment = {"TF_XLA_FLAGS": "--tf_xla_auto_jit=0"}
    assert enable_cache(a, environment)
    assert environment["TF_XLA_FLAGS"].startswith("--tf_xla_auto_jit=0 --tf_xla_persistent_cache_directory=")
    assert a.is_dir()


def test_a_cache_that_cannot_be_used_is_left_out(tmp_path):
    environment = {}
    (tmp_path / "file").write_text("")
    assert not enable_cache(tmp_path / "file" / "below", environment)
    assert not enable_cache(tmp_path / "with space", environment)
    assert environment == {}


def test_a_process_works_in_a_copy_and_publishes_what_it_compiled(tmp_path):
    directory = tmp_path / "model-1"
    directory.mkdir()
    (directory / "old.pb").write_text("old")
    left_behind = tmp_path / "model-1.run-999999999"
    left_behind.mkdir()
    private = open_private_copy(directory)
    assert private != directory
    assert not left_behind.exists()
    assert (private / "old.pb").read_text() == "old"
    (private / "new.pb").write_text("new")
    assert not (directory / "new.pb").exists()
    publish(private, directory)
    assert sorted(entry.name for entry in directory.iterdir()) == ["new.pb", "old.pb"]


def test_the_oldest_entries_go_when_there_are_too_many(tmp_path, monkeypatch):
    monkeypatch.setattr(compile_cache, "_MOST_ENTRIES", 2)
    directory = tmp_path / "model-1"
    private = open_private_copy(directory)
    for age, name in enumerate(("third", "second", "first")):
        (private / name).write_text("")
        os.utime(private / name, ns=(10 - age, 10 - age))
    publish(private, directory)
    assert sorted(entry.name for entry in directory.iterdir()) == ["second", "third"]


@pytest.mark.full
def test_a_second_process_finds_what_the_first_compiled(tmp_path):
    """XLA really reads and writes the directory that the flags name."""
    code = (
        "import os, sys, pathlib\n"
        "from server.engines.compile_cache import enable_cache\n"
        "place = pathlib.Path(sys.argv[1])\n"
        "enable_cache(place, os.environ)\n"
        "import tensorflow as tf\n"
        "tf.function(lambda x: tf.tanh(x) @ x, jit_compile=True)(tf.ones([8, 8]))\n"
        "print(*sorted((f.name, f.stat().st_mtime_ns) for f in place.iterdir()))\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3"}
    first, second = (subprocess.run(command, env=environment, stdout=subprocess.PIPE).stdout for _ in range(2))
    assert b".pb" in first
    assert first == second


def prepared(**settings):
    spec = load_models(str(SERVICES / "one.py"))[0]
    engine = build_engine("static", spec, EngineSettings(**settings))
    samples = draw_samples(spec, engine, seed=0)
    engine.prepare([sample.example for sample in samples if sample.usable], lambda *_: None)
    return engine


def programs(engine):
    return {program["program"] for program in engine.report["programs"]}


def test_xla_can_be_switched_off_or_forced_and_has_a_budget():
    assert programs(prepared(xla="off")) == {"plain"}
    assert programs(prepared(xla="only")) == {"xla"}
    engine = prepared(compile_budget_s=0.0)
    assert {program["note"] for program in engine.report["programs"]} == {"the compile budget is spent"}
    assert programs(engine) == {"plain"}


def test_the_maximum_batch_size_can_be_overridden():
    assert [timed.bucket.rows for timed in prepared(xla="off", max_batch_size=3).buckets()] == [1, 2, 3]


def test_a_device_that_is_not_there_is_refused():
    for device in ("gpu:99", "tpu", "gpu:x"):
        with pytest.raises(ModelLoadError, match=f"there is no device '{device}'"):
            set_up_device(EngineSettings(device=device))
