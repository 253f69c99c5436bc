"""Loading a user's model file or module, and finding the models that it registers.

A file is loaded under a module name of its own, and its folder goes to the *end* of the import path, so a
`server/` folder or a `queue.py` beside it can't take the place of batchd's packages or the standard library.
The folder stays on the path: functions may import when they are traced, which is later. Only engine
processes call this; the HTTP process learns names from them.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from server.errors import ModelLoadError
from server.registry import ModelSpec, collect_models, models_in

_OUR_PACKAGES = ("server", "vectorizer", "clients", "loadtest")


def load_models(location: str) -> tuple[ModelSpec, ...]:
    """Loads a file path (`model.py`) or dotted module name (`package.module`); returns its models, in order.

    Raises ModelLoadError, in one sentence, where the location is missing, fails to run, or has no `@model`.
    """
    with collect_models() as found:
        module = _load_file(Path(location)) if _is_path(location) else _load_module(location)
    specs = tuple(found) or tuple(models_in(vars(module)))
    if not specs:
        raise ModelLoadError(
            f"{location} registers no model: put @model(name=..., inputs=...) from `server` on a function"
        )
    return specs


def choose_model(
    specs: tuple[ModelSpec, ...], name: str | None, location: str, version: str | None = None
) -> ModelSpec:
    """Returns the model of that name and version; the first, of that name, where the one or the other is None."""
    if name is None:
        return specs[0]
    named = [spec for spec in specs if spec.name == name]
    if not named:
        known = ", ".join(f"'{spec.name}'" for spec in specs)
        raise ModelLoadError(f"{location} registers no model named '{name}'; it has {known}")
    for spec in named:
        if version in (None, spec.version):
            return spec
    known = ", ".join(f"'{spec.version}'" for spec in named)
    raise ModelLoadError(f"{location} registers no version '{version}' of model '{name}'; it has {known}")


def _is_path(location: str) -> bool:
    return location.endswith(".py") or os.sep in location or Path(location).exists()


def _load_file(path: Path) -> ModuleType:
    if path.is_dir():
        raise ModelLoadError(f"{path} is a folder: give the Python file in it that holds the model")
    if not path.is_file():
        raise ModelLoadError(f"there is no model file {path} (looked in {Path.cwd()})")
    path = path.resolve()
    unique = f"batchd_model_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:12]}"
    spec = importlib.util.spec_from_file_location(unique, path)
    if spec is None or spec.loader is None:
        raise ModelLoadError(f"{path} is not a Python file: its name must end with .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[unique] = module
    with _explained(str(path), path.parent):
        spec.loader.exec_module(module)
    return module


def _load_module(name: str) -> ModuleType:
    if not all(part.isidentifier() for part in name.split(".")):
        raise ModelLoadError(f"'{name}' is neither an existing file nor a module name")
    with _explained(name, Path.cwd()):
        return importlib.import_module(name)


@contextmanager
def _explained(location: str, folder: Path) -> Iterator[None]:
    """Puts `folder` at the end of the import path, and turns what the user's code raises into a sentence."""
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
    try:
        yield
    except ModelLoadError as error:
        raise ModelLoadError(f"cannot load {location}: {error.message}") from error
    except SyntaxError as error:
        raise ModelLoadError(
            f"cannot load {location}: syntax error at {error.filename}:{error.lineno}: {error.msg}"
        ) from error
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if missing == location:
            raise ModelLoadError(
                f"there is no module '{location}' (looked on the import path and in {folder}); "
                "for a file give its path, ending with .py"
            ) from error
        raise ModelLoadError(
            f"cannot load {location}: {error.msg}{_place(error, folder)}{_hidden_hint(missing, folder)}"
        ) from error
    except (Exception, SystemExit) as error:
        what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        raise ModelLoadError(f"cannot load {location}: {what}{_place(error, folder)}") from error


def _place(error: BaseException, folder: Path) -> str:
    """Returns " (file:line: source)" of the deepest frame in the user's folder."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        inside = Path(frame.filename).is_relative_to(folder)
        if inside and "site-packages" not in frame.filename and frame.filename != __file__:
            return f" ({frame.filename}:{frame.lineno}: {frame.line})"
    return ""


def _hidden_hint(missing: str, folder: Path) -> str:
    package = missing.split(".")[0]
    if package in _OUR_PACKAGES and (folder / package).exists():
        return f"; '{package}' is a package of batchd, so {folder / package} can't be imported: rename it"
    return ""
