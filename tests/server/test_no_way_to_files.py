"""Nothing that arrives is run, unpickled or made a path: by the source of the server, and by trying.

Models are Python files: whoever starts the server names them, and only engine processes import them.
"""

from __future__ import annotations

import ast
import builtins
import io
import json
import os
from collections.abc import Iterator
from http.client import HTTPConnection
from itertools import product
from pathlib import Path

import pytest

from tests.support.protocol_service import Background, protocol_service
from tests.test_imports import ROOT

SERVER = sorted((ROOT / "server").rglob("*.py"))
MODULES_THAT_RUN_BYTES = {
    *("pickle", "_pickle", "cPickle", "marshal", "shelve", "dill", "cloudpickle", "joblib", "yaml", "xmlrpc"),
    *("multiprocessing", "code", "codeop", "runpy"),
}
CALLS_THAT_RUN = {"eval", "exec", "compile", "__import__"}
METHODS_THAT_RUN = {("np", "load"), ("numpy", "load"), ("np", "fromfile"), ("os", "system"), ("os", "popen")}
MODULES_OF_PATHS = {"pathlib", "os", "io", "shutil", "glob", "tempfile", "gzip", "codecs"}
CALLS_THAT_OPEN = {"open"}
METHODS_THAT_OPEN = {
    *("read_text", "read_bytes", "write_text", "write_bytes", "unlink", "rmdir", "mkdir", "rename", "touch"),
    *("iterdir", "glob", "rglob", "symlink_to", "listdir", "scandir", "rmtree", "memfd_create"),
}

WHO_TOUCHES_FILES = {
    "server/settings.py": "the settings file, which the operator names",
    "server/tokens.py": "the token file, likewise",
    "server/tls.py": "certificate and key, likewise",
    "server/grpc/credentials.py": "the same certificate and key",
    "server/grpc/closing.py": "its own sockets, when it ends",
    "server/loading.py": "model files, which the operator names",
    "server/process/wire.py": "memory files without names",
    "server/engines/compile_cache.py": "compiled programs, under names made from the model file's",
    "server/engines/compile_watch.py": "counts them",
}
"""Every module that may, and what it touches; none of these paths comes with a request."""

WHO_STARTS_PROCESSES = {
    "server/http/serve.py": "starts and ends it all",
    "server/grpc/closing.py": "ends gRPC's sockets",
    "server/process/host.py": "starts engine processes, with the operator's model files",
    "server/process/child.py": "is one",
    "server/process/worker.py": "likewise",
    "server/process/wire.py": "makes the memory between them",
}
"""Between requests and models; no path that they know comes with a request."""

WHAT_REQUESTS_PASS = ("server/http/", "server/grpc/", "server/open_inference/", "server/core/", "server/process/")
ALSO = ("lanes", "tensors", "dispatcher", "verdicts", "access", "provenance", "metrics", "shadow", "supervisor")


def calls_in(path: Path) -> Iterator[tuple[int, str, str]]:
    """The line, the name before the dot if there is one, and the name of everything called."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Name):
                yield node.lineno, "", node.func.id
            elif isinstance(node.func, ast.Attribute):
                owner = node.func.value
                yield node.lineno, owner.id if isinstance(owner, ast.Name) else "?", node.func.attr


def imports_in(path: Path) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.lineno, node.module or ""


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def touches_files(path: Path) -> bool:
    """Whether a module calls what opens or changes a file; `x.open()` is that only where paths are known."""
    knows_paths = any(module.partition(".")[0] in MODULES_OF_PATHS for _, module in imports_in(path))
    return any(
        (not owner and name in CALLS_THAT_OPEN)
        or (owner and name in METHODS_THAT_OPEN)
        or (owner and name == "open" and knows_paths)
        or (owner == "os" and name in ("remove", "replace"))
        for _, owner, name in calls_in(path)
    )


def test_nothing_runs_what_it_reads():
    offences = [
        f"{name_of(path)}:{line}: {owner}.{name}"
        for path in SERVER
        for line, owner, name in calls_in(path)
        if (not owner and name in CALLS_THAT_RUN) or (owner, name) in METHODS_THAT_RUN
    ]
    offences += [
        f"{name_of(path)}:{line}: {module}"
        for path in SERVER
        for line, module in imports_in(path)
        if module.partition(".")[0] in MODULES_THAT_RUN_BYTES
    ]
    assert not offences, "\n" + "\n".join(offences)


def test_only_these_touch_files():
    found = {name_of(path) for path in SERVER if touches_files(path)}
    assert found <= set(WHO_TOUCHES_FILES), found - set(WHO_TOUCHES_FILES)
    mentioned = {name for name in WHO_TOUCHES_FILES if (ROOT / name).exists()}
    assert mentioned - found <= {"server/loading.py"}, "a module that needs no mention any more"


def test_where_requests_pass_no_path_is_made():
    """Nothing there even imports what handles paths, but for those that start processes."""
    passed = [path for path in SERVER if name_of(path).startswith(WHAT_REQUESTS_PASS)]
    passed += [ROOT / "server" / f"{name}.py" for name in ALSO]
    offences = [
        f"{name_of(path)}:{line}: {module}"
        for path in passed
        for line, module in imports_in(path)
        if module.partition(".")[0] in {*MODULES_OF_PATHS, "importlib", "subprocess"}
        and name_of(path) not in WHO_STARTS_PROCESSES
        and not (module == "importlib.metadata" and path.name == "application.py")
    ]
    assert not offences, "\n" + "\n".join(offences)


def test_the_scan_can_find_something(tmp_path):
    for text in ("open(x)", "import os\nos.remove(x)", "from pathlib import Path\nPath(x).read_text()"):
        (tmp_path / "m.py").write_text(text)
        assert touches_files(tmp_path / "m.py"), text
    (tmp_path / "m.py").write_text("self.open()")
    assert not touches_files(tmp_path / "m.py")


TRAVERSALS = (
    "../../etc/passwd",
    "..",
    "/etc/passwd",
    "..%2f..%2fetc%2fpasswd",
    "%2e%2e%2fone",
    "....//",
    "a%00.py",
    "~",
)


@pytest.fixture(scope="module")
def served() -> Iterator[Background]:
    with protocol_service() as served:
        yield served


def ask(connection: HTTPConnection, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
    """Sends a path as it is; other clients tidy it up."""
    connection.request(method, path, body)
    reply = connection.getresponse()
    return reply.status, reply.read()


@pytest.mark.parametrize("name", TRAVERSALS)
def test_names_that_look_like_paths_are_names(name, served, monkeypatch):
    """Whatever they are asked for, no file is opened."""
    opened: list[object] = []
    paths = ("/predict/{}", "/models/{}", "/v2/models/{}/infer", "/v2/models/{}", "/v1/models/{}:predict")
    paths += ("/v2/repository/models/{}/load", "/v2/repository/models/{}/unload", "/v2/models/add/versions/{}/infer")
    connection = HTTPConnection(served.http, timeout=20)
    for module, function in ((io, "open"), (builtins, "open"), (os, "open")):
        monkeypatch.setattr(module, function, lambda *arguments, **_: opened.append(arguments))
    for path, method in product(paths, ("GET", "POST")):
        status, body = ask(connection, method, path.format(name), b'{"inputs": {"a": 1, "b": 1}}')
        assert status in (400, 404, 405, 501), (path, body)
        assert b"root:" not in body
    for body in ({"model": name, "inputs": {}}, {"signature": name, "inputs": {}}):
        assert ask(connection, "POST", "/predict", json.dumps(body).encode())[0] in (400, 404)
    monkeypatch.undo()
    connection.close()
    assert opened == []


def test_pages_of_the_documentation_come_from_their_folder_only(served):
    connection = HTTPConnection(served.http, timeout=20)
    assert ask(connection, "GET", "/static-offline-docs/swagger-ui.css")[0] == 200
    for name in ("../main.py", "..%2fmain.py", "%2e%2e/%2e%2e/etc/passwd", "/etc/passwd", "%2fetc%2fpasswd"):
        status, body = ask(connection, "GET", f"/static-offline-docs/{name}")
        assert (status, list(json.loads(body))) == (404, ["error"])
    connection.close()
