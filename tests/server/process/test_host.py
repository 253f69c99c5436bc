"""The engine process from outside: what it answers, how it fails, and that nothing is left of it."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from server.engines.batch_result import RowError
from server.engines.settings import EngineSettings
from server.errors import CertificationError, EngineDied, ModelLoadError, UnknownModel
from server.model_description import Bucket
from server.process.host import EngineProcess
from server.process.in_thread import EngineThread
from server.process.messages import ModelSource

ROOT = Path(__file__).parents[3]
SERVICES = ROOT / "tests" / "services"
QUICK = EngineSettings(engine="per_request", compile_cache=False)


def rows(*values):
    return [(np.asarray(value, np.float32),) for value in values]


def service(name):
    return ModelSource(str(SERVICES / f"{name}.py"))


async def wait_gone(pid):
    """Waits until no process has that id."""
    for _ in range(200):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"process {pid} is still there")


@pytest.mark.parametrize(
    ("kind", "engine"), [(EngineProcess, "static"), (EngineThread, "static"), (EngineThread, "while_loop")]
)
async def test_a_model_is_loaded_described_and_run(kind, engine, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    host = kind(service("one"), EngineSettings(engine=engine))
    phases = []
    description = await host.start(lambda progress: phases.append(progress.phase))
    try:
        assert list(dict.fromkeys(phases)) == ["import", "load", "vectorize", "compile", "certify", "warm"]
        assert (description.name, description.version, description.engine) == ("affine", "1", engine)
        assert description.file_models == ("affine",)
        assert await host.models_found == ("affine",)
        assert description.device in ("cpu", "gpu:0")
        signature = description.signature("predict")
        assert [(t.name, t.dtype, t.shape) for t in signature.inputs] == [("x", "float32", [])]
        assert [bucket.rows for bucket in signature.buckets] == [1, 2, 4]
        assert all(timed.seconds > 0 for timed in description.timings["predict"])
        result = await host.run("predict", rows(0, -1, 2), Bucket(4), [7, 9, 7])
        assert list(result.owners) == [7, 9, 7]
        assert result.rows[1] == RowError("x must not be negative")
        assert (float(result.rows[0][0]), float(result.rows[2][0])) == (1.0, 7.0)
        assert result.stats.compiles == 0
        assert result.stats.isolated >= 1
        results = await asyncio.gather(*(host.run("predict", rows(i, i + 9), Bucket(2)) for i in range(40)))
        answers = [[float(y) for (y,) in result.rows] for result in results]
        assert answers == [[3 * i + 1, 3 * i + 28] for i in range(40)]
        if host.pid is not None:
            os.kill(host.pid, signal.SIGINT)
            os.kill(host.pid, signal.SIGTERM)
            assert (await host.run("predict", rows(1), Bucket(1))).rows[0][0] == 4.0
        with pytest.raises(UnknownModel):
            await host.run("nonsense", rows(0), Bucket(1))
    finally:
        await host.close()
    assert await host.exited
    with pytest.raises(EngineDied):
        await host.run("predict", rows(0), Bucket(1))


async def test_a_killed_engine_is_noticed_at_once():
    host = EngineProcess(service("deadly"), QUICK)
    await host.start()
    assert (await host.run("predict", rows(1), Bucket(1))).rows[0][0] == 1.0
    started_at = time.monotonic()
    with pytest.raises(EngineDied, match="deadly"):
        await host.run("predict", rows(13), Bucket(1))
    with pytest.raises(EngineDied):  # before `exited` is resolved
        await asyncio.wait_for(host.run("predict", rows(1), Bucket(1)), 1)
    assert time.monotonic() - started_at < 1
    assert await host.exited == "was ended by SIGKILL"
    with pytest.raises(EngineDied):
        await host.run("predict", rows(1), Bucket(1))
    await host.close()
    await host.close()


async def test_a_slow_engine_survives_cancelled_callers_and_ends_when_closed():
    host = EngineProcess(service("slow"), QUICK)
    await host.start()
    cancelled = asyncio.ensure_future(host.run("predict", rows(0.3), Bucket(1)))
    await asyncio.sleep(0.1)
    cancelled.cancel()
    assert (await host.run("predict", rows(0.0), Bucket(1))).rows[0][0] == 0.0
    with pytest.raises(asyncio.CancelledError):
        await cancelled

    running = asyncio.ensure_future(host.run("predict", rows(60), Bucket(1)))
    await asyncio.sleep(0.2)
    started_at = time.monotonic()
    await host.close()
    assert time.monotonic() - started_at < 1.5
    with pytest.raises(EngineDied):
        await running
    await wait_gone(host.pid)


@pytest.mark.parametrize(
    ("text", "error", "sentence"),
    [
        ("x = 1", ModelLoadError, "registers no model"),
        ("x = undefined_name", ModelLoadError, "NameError: name 'undefined_name' is not defined"),
        (
            "import tensorflow as tf\nfrom server import model\n"
            "@model(inputs={'x': tf.TensorSpec([], tf.float32)})\n"
            "def f(x):\n    tf.debugging.assert_less(x, -100.0, message='far too big')\n    return x\n",
            CertificationError,
            "raises on 64 of 64 generated examples.*give samples=.*far too big",
        ),
        (
            "import tensorflow as tf\nfrom server import model\n"
            "@model(inputs={'x': tf.TensorSpec([], tf.float32)})\n"
            "def f(x):\n    return x.nonsense\n",
            ModelLoadError,
            "can't be traced: .*no attribute 'nonsense' .*broken.py:5",
        ),
    ],
)
async def test_what_is_wrong_with_a_model_is_said_in_one_sentence(tmp_path, text, error, sentence):
    path = tmp_path / "broken.py"
    path.write_text(text)
    host = EngineThread(ModelSource(str(path)), QUICK)
    with pytest.raises(error, match=sentence):
        await host.start()
    assert await host.exited


async def test_an_engine_that_ends_while_loading_is_reported(tmp_path):
    path = tmp_path / "broken.py"
    path.write_text("import os\nos._exit(7)")
    host = EngineProcess(ModelSource(str(path)), QUICK)
    with pytest.raises(ModelLoadError, match=r"broken.py ended with status 7 \(phase: load\)"):
        await host.start()
    assert await host.exited == "ended with status 7"


TWO_MODELS = """
import tensorflow as tf
from server import model
from sibling import FACTOR

@model(inputs={"x": tf.TensorSpec([], tf.float32)})
def five_times(x):
    return x * FACTOR

@model(inputs={"text": tf.TensorSpec([], tf.string)})
def shout(text):
    return tf.strings.upper(text)
"""


async def test_a_file_of_two_models_beside_a_server_folder(tmp_path, monkeypatch):
    """The folder doesn't shadow ours; the file's names come early; each model gets its own process."""
    (tmp_path / "server").mkdir()
    (tmp_path / "server" / "__init__.py").write_text("raise RuntimeError('the wrong server')")
    (tmp_path / "sibling.py").write_text("FACTOR = 5.0")
    (tmp_path / "mine.py").write_text(TWO_MODELS)
    monkeypatch.chdir(tmp_path)
    first = EngineProcess(ModelSource("mine.py"), QUICK)
    start = asyncio.ensure_future(first.start())
    assert await first.models_found == ("five_times", "shout")
    second = EngineProcess(ModelSource("mine.py", "shout"), QUICK)
    description = await second.start()
    assert (await start).name == "five_times"
    assert (description.name, description.file_models) == ("shout", ("five_times", "shout"))
    assert (await first.run("predict", rows(2), Bucket(1))).rows[0][0] == 10.0
    result = await second.run("predict", [(np.array(b"Ada", object),)], Bucket(1))
    assert result.rows[0][0].item() == b"ADA"
    await first.close()
    await second.close()


async def test_the_engine_ends_when_its_parent_is_killed(tmp_path):
    script = tmp_path / "parent.py"
    script.write_text(
        "import asyncio, sys\n"
        "from server.engines.settings import EngineSettings\n"
        "from server.process.host import EngineProcess\n"
        "from server.process.messages import ModelSource\n"
        "import numpy as np\n"
        "from server.model_description import Bucket\n"
        "async def main():\n"
        "    host = EngineProcess(ModelSource(sys.argv[1]), EngineSettings(engine='per_request'))\n"
        "    await host.start()\n"
        "    print(host.pid, flush=True)\n"
        "    await host.run('predict', [(np.float32(60),)], Bucket(1))\n"
        "asyncio.run(main())\n"
    )
    parent = subprocess.Popen(
        [sys.executable, str(script), str(SERVICES / "slow.py")],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(tmp_path)},
    )
    engine_pid = int(await asyncio.to_thread(parent.stdout.readline))
    os.kill(engine_pid, 0)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    await wait_gone(engine_pid)


def test_the_http_process_side_does_not_import_tensorflow():
    modules = (
        "server, server.registry, server.errors, server.loading, server.model_description, server.engines, "
        "server.engines.measure, server.process.host, server.process.messages, server.process.wire"
    )
    code = f"import sys, {modules}; sys.exit('tensorflow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(ROOT)}).returncode == 0
