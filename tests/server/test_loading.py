import sys
from pathlib import Path

import pytest

from server.errors import ModelLoadError
from server.loading import choose_model, load_models

PLAIN_MODEL = """
from types import SimpleNamespace
from server import model

@model(name="{name}", inputs={{"x": SimpleNamespace(shape=(), dtype="float32")}})
def f(x):
    return x
"""


def write(folder, name, text):
    path = folder / name
    path.write_text(text)
    return str(path)


def test_a_files_models_come_in_order(tmp_path):
    text = PLAIN_MODEL.format(name="one") + PLAIN_MODEL.format(name="two")
    specs = load_models(write(tmp_path, "models.py", text))
    assert [spec.name for spec in specs] == ["one", "two"]
    assert choose_model(specs, None, "models.py").name == "one"
    assert choose_model(specs, "two", "models.py").name == "two"
    with pytest.raises(ModelLoadError, match=r"models.py registers no model named 'three'; it has 'one', 'two'"):
        choose_model(specs, "three", "models.py")


def test_versions_of_one_model_in_one_file(tmp_path):
    text = "".join(
        PLAIN_MODEL.format(name="same").replace("@model(", f"@model(version='{each}', ") for each in ("1", "2")
    )
    specs = load_models(write(tmp_path, "models.py", text))
    assert [(spec.name, spec.version) for spec in specs] == [("same", "1"), ("same", "2")]
    assert choose_model(specs, "same", "models.py").version == "1"
    assert choose_model(specs, "same", "models.py", "2").version == "2"
    with pytest.raises(ModelLoadError, match=r"models.py registers no version '3' of model 'same'; it has '1', '2'"):
        choose_model(specs, "same", "models.py", "3")
    with pytest.raises(ModelLoadError, match="two models are named 'same'"):
        load_models(write(tmp_path, "twice.py", text.replace("'2'", "'1'")))


def test_two_files_of_the_same_name_do_not_meet(tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        path = write(tmp_path / folder, "model.py", PLAIN_MODEL.format(name="same"))
        assert [spec.name for spec in load_models(path)] == ["same"]


def test_a_module_is_found_from_the_current_folder(tmp_path, monkeypatch):
    write(tmp_path, "my_models_module.py", PLAIN_MODEL.format(name="from_module"))
    monkeypatch.chdir(tmp_path)
    assert [spec.name for spec in load_models("my_models_module")] == ["from_module"]
    assert [spec.name for spec in load_models("my_models_module")] == ["from_module"]


def test_neighbours_can_be_imported_but_not_in_place_of_ours(tmp_path):
    write(tmp_path, "neighbour_of_model.py", "NAME = 'neighbourly'")
    write(tmp_path, "json.py", "raise RuntimeError('not the standard json')")
    (tmp_path / "server").mkdir()
    write(tmp_path / "server", "__init__.py", "raise RuntimeError('not our server')")
    text = "import json\nfrom neighbour_of_model import NAME\n" + PLAIN_MODEL.format(name="{NAME}")
    path = write(tmp_path, "model.py", text.replace('"{NAME}"', "NAME"))
    assert [spec.name for spec in load_models(path)] == ["neighbourly"]
    assert Path(sys.modules["server"].__file__).parent != tmp_path / "server"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("x = 1\n", "registers no model: put @model"),
        (
            "x = 1\ny = nonsense\n",
            r"NameError: name 'nonsense' is not defined \(.*broken.py:2: y = nonsense\)",
        ),
        ("x = 1\ndef f(:\n", r"syntax error at .*broken.py:2"),
        ("import no_such_module\n", r"No module named 'no_such_module' \(.*broken.py:1"),
        ("raise SystemExit(3)\n", "SystemExit: 3"),
        (
            "import server.features\n",
            r"'server' is a package of batchd, so .*server can't be imported: rename it",
        ),
        (PLAIN_MODEL.format(name="a") + PLAIN_MODEL.format(name="a"), "two models are named 'a'"),
    ],
)
def test_a_broken_file_is_explained_with_the_users_line(tmp_path, text, sentence):
    (tmp_path / "server").mkdir()
    with pytest.raises(ModelLoadError, match=sentence):
        load_models(write(tmp_path, "broken.py", text))


def test_a_missing_file_folder_or_module(tmp_path):
    with pytest.raises(ModelLoadError, match="there is no model file"):
        load_models(str(tmp_path / "missing.py"))
    with pytest.raises(ModelLoadError, match="is a folder: give the Python file"):
        load_models(str(tmp_path))
    with pytest.raises(ModelLoadError, match=r"there is no module 'no.such.module'|No module named 'no'"):
        load_models("no.such.module")
    with pytest.raises(ModelLoadError, match="neither an existing file nor a module name"):
        load_models("what is this")
