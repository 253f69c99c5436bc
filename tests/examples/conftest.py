"""Loads the files of examples/ the way a user runs them: from their own folder, as no package."""

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import tensorflow as tf

EXAMPLES = Path(__file__).parents[2] / "examples"

LoadExample = Callable[[str, str], ModuleType]


@pytest.fixture
def load_example(monkeypatch: pytest.MonkeyPatch) -> LoadExample:
    """A function (model folder, file stem) -> module, each under a name of its own."""

    def load(folder: str, stem: str) -> ModuleType:
        path = EXAMPLES / folder / f"{stem}.py"
        monkeypatch.syspath_prepend(str(path.parent))
        spec = importlib.util.spec_from_file_location(f"example_{folder}_{stem}", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load


@pytest.fixture
def run_client(load_example: LoadExample, capsys: pytest.CaptureFixture[str]) -> Callable[..., list[str]]:
    """A function (model, *arguments) -> the lines its client.py prints; the per-example function answers."""

    def run(name: str, *arguments: str) -> list[str]:
        client = load_example(name, "client")
        function = tf.function(getattr(load_example(name, "model"), name), reduce_retracing=True)
        client.Client = lambda url: InProcessClient(name, function)
        client.main(list(arguments))
        return capsys.readouterr().out.splitlines()

    return run


class InProcessClient:
    """Stands in for clients.Client: answers from the per-example function, without a server."""

    def __init__(self, name: str, function: Callable[..., dict[str, tf.Tensor]]) -> None:
        self._name = name
        self._function = function

    def predict(self, model: str, **inputs: Any) -> dict[str, Any]:
        assert model == self._name
        outputs = self._function(**{key: tf.constant(value) for key, value in inputs.items()})
        values = {key: value.numpy() for key, value in outputs.items()}
        return {key: value.decode() if isinstance(value, bytes) else value for key, value in values.items()}
