"""The Dockerfile, replayed step by step without a docker engine.

`/` becomes a folder. COPY copies what `.dockerignore` leaves, RUN runs (pip without dependencies: those of
this environment are put within reach), HEALTHCHECK and CMD run in what comes out. Only making a user stays
a look at the command.
"""

from __future__ import annotations

import fnmatch
import json
import os
import re
import shlex
import shutil
import subprocess
import sysconfig
import time
import tomllib
from dataclasses import dataclass, field
from importlib.metadata import metadata
from pathlib import Path
from urllib.request import urlopen

import pytest

from loadtest.servers import free_port
from tests.support.stub_server import StubApplication, stub_server

ROOT = Path(__file__).parent.parent
PACKAGES = ("clients", "loadtest", "server", "vectorizer")


@dataclass
class Stage:
    base: str
    name: str | None
    steps: list[tuple[str, str]] = field(default_factory=list)

    def last(self, keyword: str) -> str:
        return [rest for word, rest in self.steps if word == keyword][-1]

    def environment(self) -> dict[str, str]:
        words = [word for keyword, rest in self.steps if keyword == "ENV" for word in shlex.split(rest)]
        return dict(word.split("=", 1) for word in words)


def parse(text: str) -> list[Stage]:
    stages: list[Stage] = []
    without_comments = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    for line in without_comments.replace("\\\n", " ").splitlines():
        keyword, _, rest = line.strip().partition(" ")
        if keyword == "FROM":
            words = rest.split()
            stages.append(Stage(words[0], words[2] if words[1:2] == ["AS"] else None))
        elif keyword:
            stages[-1].steps.append((keyword, rest.strip()))
    return stages


STAGES = parse((ROOT / "Dockerfile").read_text())
BUILD, FINAL = STAGES


class Image:
    """What one stage's file system would be, under a folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.folder = root
        self.arguments: dict[str, str] = {}

    def inside(self, path: str) -> Path:
        return self.root / path.lstrip("/") if path.startswith("/") else self.folder / path

    def step(self, keyword: str, rest: str) -> None:
        if keyword == "ARG":
            name, _, default = rest.partition("=")
            self.arguments[name] = default
        elif keyword == "WORKDIR":
            self.folder = self.inside(rest)
            self.folder.mkdir(parents=True, exist_ok=True)
        elif keyword == "COPY":
            self.copy(rest.split())
        elif keyword == "RUN":
            self.run(rest)
        else:
            raise AssertionError(f"{keyword} isn't expected while building")

    def copy(self, words: list[str]) -> None:
        *sources, destination = words
        for source in sources:
            path = ROOT / source
            assert path.exists(), f"COPY {source}: there is no such file or folder"
            assert not is_ignored(source), f"COPY {source}: .dockerignore leaves it out"
            target = self.inside(destination)
            if path.is_dir():
                shutil.copytree(path, target, ignore=ignored_names)
            else:
                target.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, target)

    def run(self, command: str) -> None:
        here = re.sub(r"(?<![\w.])/(?=opt/)", f"{self.root}/", command)
        done = subprocess.run(
            ["sh", "-c", here],
            cwd=self.folder,
            env={**os.environ, **self.arguments, "PIP_NO_DEPS": "1", "PIP_NO_BUILD_ISOLATION": "0"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"RUN {command}\n{done.stdout}{done.stderr}"
        for site_packages in self.root.glob("opt/*/lib/python3*/site-packages"):
            self.put_this_environment_within_reach(site_packages)

    def put_this_environment_within_reach(self, site_packages: Path) -> None:
        """Behind what is installed there; the setuptools that a new venv may bring is too old for us."""
        (site_packages / "this_environment.pth").write_text(sysconfig.get_path("purelib"))
        for pattern in ("setuptools*", "pkg_resources", "_distutils_hack"):
            for bundled in site_packages.glob(pattern):
                shutil.rmtree(bundled)
        (site_packages / "distutils-precedence.pth").unlink(missing_ok=True)


def is_ignored(path: str) -> bool:
    patterns = [line for line in (ROOT / ".dockerignore").read_text().split() if not line.startswith("#")]
    parts = Path(path).parts
    return any(
        fnmatch.fnmatch(parts[-1] if pattern.startswith("**/") else parts[0], pattern.removeprefix("**/"))
        for pattern in patterns
    )


def ignored_names(folder: str, names: list[str]) -> list[str]:
    return [name for name in names if is_ignored(str(Path(folder, name).relative_to(ROOT)))]


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    """The build stage, run."""
    image = Image(tmp_path_factory.mktemp("image"))
    for keyword, rest in BUILD.steps:
        image.step(keyword, rest)
    return image


def inside_image(image: Image, command: list[str], *, port: int) -> tuple[list[str], dict[str, str]]:
    """A command of the final stage and its environment, with this image's paths and a free port."""
    path = FINAL.environment()["PATH"].replace("/opt", f"{image.root}/opt", 1)
    here = [word.replace("8000", str(port)).replace("/models", f"{image.root}/models") for word in command]
    return here, {
        **os.environ,
        **FINAL.environment(),
        "PATH": path.replace("$PATH", os.environ["PATH"]),
        "HOME": str(image.root),
    }


def test_two_stages_of_which_the_last_only_takes_what_was_built() -> None:
    assert [stage.name for stage in STAGES] == ["build", None]
    copies = [rest for keyword, rest in FINAL.steps if keyword == "COPY"]
    assert copies == ["--from=build /opt/batchd /opt/batchd"]


def test_every_package_is_copied() -> None:
    copied = {word for keyword, rest in BUILD.steps if keyword == "COPY" for word in rest.split()[:-1]}
    assert set(PACKAGES) <= copied
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {project["readme"], *project["license-files"], "pyproject.toml"} <= copied


def test_it_runs_as_a_user_who_is_not_root() -> None:
    user = FINAL.last("USER")
    assert user not in ("root", "0")
    (made,) = [rest for keyword, rest in FINAL.steps if keyword == "RUN"]
    assert made.split()[0] == "useradd"
    assert made.split()[-1] == user
    keywords = [keyword for keyword, _ in FINAL.steps]
    assert keywords.index("USER") < keywords.index("CMD")


def test_the_python_is_one_that_the_project_supports() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert len({stage.base for stage in STAGES}) == 1
    version = re.fullmatch(r"python:(3\.\d+)-slim", BUILD.base)
    assert version is not None
    assert f"Programming Language :: Python :: {version[1]}" in project["classifiers"]


def test_the_build_argument_chooses_among_tensorflows_that_exist() -> None:
    assert ("ARG", "TENSORFLOW=tensorflow") in BUILD.steps
    assert BUILD.last("RUN").endswith('. "${TENSORFLOW}"')
    assert "TENSORFLOW='tensorflow[and-cuda]'" in (ROOT / "Dockerfile").read_text()
    assert "and-cuda" in (metadata("tensorflow").get_all("Provides-Extra") or [])
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert any(requirement.startswith("tensorflow>=") for requirement in project["dependencies"])


def test_what_is_installed_has_all_packages_and_no_source_tree(image: Image) -> None:
    (site_packages,) = image.root.glob("opt/batchd/lib/python3*/site-packages")
    for package in PACKAGES:
        assert (site_packages / package / "__init__.py").is_file()
        assert (site_packages / package / "py.typed").is_file()
        ours = {path.relative_to(ROOT) for path in (ROOT / package).rglob("*.py")}
        installed = {path.relative_to(site_packages) for path in (site_packages / package).rglob("*.py")}
        assert installed == ours
    assert not (site_packages / "tests").exists()
    assert list(site_packages.glob("batchd-*.dist-info/licenses/LICENSE"))


def test_the_command_is_there(image: Image) -> None:
    command, environment = inside_image(image, ["batchd", "--help"], port=0)
    done = subprocess.run(command, env=environment, cwd=image.root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "serve" in done.stdout


def test_the_health_check_passes_on_a_live_server_only(image: Image) -> None:
    check = json.loads(FINAL.last("HEALTHCHECK").partition("CMD ")[2])
    with stub_server(StubApplication()) as url:
        command, environment = inside_image(image, check, port=int(url.rpartition(":")[2]))
        assert subprocess.run(command, env=environment, check=False).returncode == 0
    dead = subprocess.run(command, env=environment, capture_output=True, check=False)
    assert dead.returncode != 0


@pytest.mark.full
def test_the_default_command_serves_a_mounted_model(image: Image) -> None:
    models = image.inside(FINAL.last("WORKDIR"))
    models.mkdir(exist_ok=True)
    (models / "model.py").write_text(
        "import tensorflow as tf\n"
        "from server import model\n\n"
        "@model(name='double', inputs={'x': tf.TensorSpec([], tf.float32)}, max_batch_size=2)\n"
        "def double(x):\n"
        "    return 2 * x\n"
    )
    port = free_port()
    command, environment = inside_image(image, json.loads(FINAL.last("CMD")), port=port)
    assert command[command.index("--host") + 1] == "0.0.0.0"
    command[command.index("--host") + 1] = "127.0.0.1"
    server = subprocess.Popen(command, env=environment, cwd=models)
    try:
        from clients import Client

        with Client(f"http://127.0.0.1:{port}") as client:
            client.wait_ready(120)
            assert client.predict("double", x=21)["output"] == 42
        assert urlopen(f"http://127.0.0.1:{port}/healthz").status == 200
    finally:
        started_at = time.monotonic()
        server.terminate()
        server.wait(60)
    assert time.monotonic() - started_at < 30
