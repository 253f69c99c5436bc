"""What every example folder must hold."""

from pathlib import Path

import numpy as np
import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
MODELS = ("digits", "language", "listops")


@pytest.mark.parametrize("name", MODELS)
def test_folder_is_complete_and_listed(name: str) -> None:
    for file in ("model.py", "train.py", "client.py", "README.md", "weights.npz"):
        assert (EXAMPLES / name / file).is_file(), file
    assert f"({name}/README.md)" in (EXAMPLES / "README.md").read_text()


@pytest.mark.parametrize("name", MODELS)
def test_weights_are_small_finite_halves(name: str) -> None:
    path = EXAMPLES / name / "weights.npz"
    assert path.stat().st_size < 1_000_000
    arrays = {key: array for key, array in np.load(path).items() if array.dtype.kind != "U"}
    assert arrays
    for key, array in arrays.items():
        assert array.dtype == np.float16, key
        assert np.isfinite(array).all(), key
