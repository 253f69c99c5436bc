"""A real server with tokens behind TLS, met by the clients that people have, in each protocol."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import grpc
import httpx
import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from tritonclient.utils import InferenceServerException

from clients import AsyncClient, Client, ConnectionFailed, Forbidden, Unauthenticated
from tests.support.certificates import PASSWORD, Certificates, make_certificates
from tests.support.serving import BATCHD, SERVICES, Serving, environment, serving

TOKENS = {right: f"the-token-with-{right}" for right in ("predict", "metrics", "admin")}
ONE = SERVICES / "one.py"


@dataclass
class Guarded:
    server: Serving
    made: Certificates
    token_file: Path

    @property
    def grpc(self) -> str:
        found = re.search(r"listens for gRPC on (\S+)", self.server.log.read_text())
        assert found
        return found[1]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory) -> Iterator[Guarded]:
    """The key is encrypted, its password in the environment."""
    folder = tmp_path_factory.mktemp("guarded")
    made = make_certificates(folder)
    token_file = folder / "tokens"
    token_file.write_text("".join(f"{right} {token}\n" for right, token in TOKENS.items()))
    token_file.chmod(0o600)
    files = ("--tls-certificate", made.certificate, "--tls-key", made.encrypted_key, "--token-file", token_file)
    with serving(
        *(ONE, "--engine", "per_request", "--grpc-port", "0", *files),
        verify=made.trusting(),
        variables={"BATCHD_TLS_KEY_PASSWORD": PASSWORD},
    ) as server:
        yield Guarded(server, made, token_file)


def test_httpx(guarded):
    client = guarded.server.client
    assert guarded.server.url.startswith("https://")
    assert client.get("/healthz").status_code == 200
    assert client.post("/predict/affine", json={"inputs": {"x": 2}}).status_code == 401
    shown = {"authorization": f"Bearer {TOKENS['predict']}"}
    reply = client.post("/predict/affine", json={"inputs": {"x": 2}}, headers=shown)
    assert reply.json()["outputs"] == {"output": 7.0}
    assert client.get("/metrics", headers=shown).status_code == 403
    with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
        httpx.get(f"{guarded.server.url}/healthz")


def test_only_good_tls_is_spoken(guarded):
    old = guarded.made.trusting()
    old.minimum_version = ssl.TLSVersion.TLSv1_2
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    address = ("127.0.0.1", guarded.server.port)
    with socket.create_connection(address) as plain, old.wrap_socket(plain, server_hostname="127.0.0.1") as spoken:
        name = spoken.cipher()[0]
    assert re.match(r"ECDHE-.*(GCM|POLY1305)", name)
    weak = guarded.made.trusting()
    weak.maximum_version = ssl.TLSVersion.TLSv1_2
    weak.set_ciphers("AES256-SHA:ECDHE-ECDSA-AES256-SHA:ECDHE-RSA-AES256-SHA:@SECLEVEL=0")
    with socket.create_connection(address) as plain, pytest.raises(ssl.SSLError):
        weak.wrap_socket(plain, server_hostname="127.0.0.1")


def test_callers_that_do_not_speak_tls_disturb_nobody(guarded):
    for sent in (b"GET / HTTP/1.1\r\nhost: x\r\n\r\n", b"\x16\x03\x01\xff\xff" + bytes(1000), b""):
        with socket.create_connection(("127.0.0.1", guarded.server.port), timeout=5) as plain:
            plain.sendall(sent)
            plain.shutdown(socket.SHUT_WR)
            while plain.recv(4096):
                pass
    assert guarded.server.client.get("/healthz").status_code == 200


def test_our_clients(guarded):
    url, authority = guarded.server.url, guarded.made.authority
    with Client(url, token=TOKENS["predict"], verify=str(authority)) as client:
        client.wait_ready(20)
        assert client.predict("affine", x=2.0)["output"] == 7.0
    with Client(url, verify=guarded.made.trusting()) as client, pytest.raises(Unauthenticated, match="send it as"):
        client.predict("affine", x=2.0)
    with Client(url, token=TOKENS["metrics"], verify=authority) as client, pytest.raises(Forbidden, match="'predict'"):
        client.predict("affine", x=2.0)
    with Client(url, token=TOKENS["predict"]) as client, pytest.raises(ConnectionFailed, match="verify="):
        client.predict("affine", x=2.0)


async def test_our_client_for_asyncio(guarded):
    async with AsyncClient(guarded.server.url, token=TOKENS["predict"], verify=guarded.made.authority) as client:
        assert (await client.predict("affine", x=2.0))["output"] == 7.0


def test_batchd_predict(guarded):
    command = [*BATCHD, "predict", "affine", "x=2", "--url", guarded.server.url, "--ca", str(guarded.made.authority)]
    without = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=60, check=False)
    assert (without.returncode, without.stdout) == (1, "")
    assert "this needs a token" in without.stderr
    with_one = environment() | {"BATCHD_TOKEN": TOKENS["predict"]}
    done = subprocess.run(command, env=with_one, capture_output=True, text=True, timeout=60, check=False)
    assert json.loads(done.stdout) == {"output": 7.0}, done.stderr
    broken = environment() | {"BATCHD_TOKEN": "two\nlines"}
    done = subprocess.run(command, env=broken, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "two" not in done.stderr


def test_curl(guarded):
    def curl(*arguments: str) -> str:
        where = ["--cacert", str(guarded.made.authority), f"{guarded.server.url}/predict/affine"]
        command = ["curl", "-s", "-d", '{"inputs": {"x": 2}}', *arguments, *where]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout

    assert json.loads(curl())["error"].startswith("this needs a token")
    shown = curl("-H", f"Authorization: Bearer {TOKENS['predict']}")
    assert json.loads(shown)["outputs"] == {"output": 7.0}


def x_for(triton) -> list:
    x = triton.InferInput("x", [1], "FP32")
    x.set_data_from_numpy(np.float32([2]))
    return [x]


def test_tritons_http_client(guarded):
    shown = {"Authorization": f"Bearer {TOKENS['predict']}"}
    with triton_http.InferenceServerClient(
        f"127.0.0.1:{guarded.server.port}",
        ssl=True,
        ssl_context_factory=guarded.made.trusting,
    ) as client:
        assert client.is_server_live()
        with pytest.raises(InferenceServerException, match="this needs a token"):
            client.infer("affine", x_for(triton_http))
        assert client.infer("affine", x_for(triton_http), headers=shown).as_numpy("output").tolist() == [7.0]
        with pytest.raises(InferenceServerException, match="doesn't have the right 'admin'"):
            client.unload_model("affine", headers=shown)


def test_tritons_grpc_client(guarded):
    shown = {"authorization": f"Bearer {TOKENS['predict']}"}
    with triton_grpc.InferenceServerClient(
        guarded.grpc, ssl=True, root_certificates=str(guarded.made.authority)
    ) as client:
        assert client.is_server_live()
        with pytest.raises(InferenceServerException, match="this needs a token"):
            client.infer("affine", x_for(triton_grpc))
        assert client.infer("affine", x_for(triton_grpc), headers=shown).as_numpy("output").tolist() == [7.0]
    with triton_grpc.InferenceServerClient(guarded.grpc) as client, pytest.raises(InferenceServerException):
        client.is_server_live()


def test_a_token_that_is_taken_away_opens_nothing_any_more(guarded):
    """No restart and no signal; within the second that is said."""
    kept = guarded.token_file.read_text()
    new = "a-token-that-is-new"
    shown, newly_shown = ({"authorization": f"Bearer {token}"} for token in (TOKENS["predict"], new))
    client = guarded.server.client
    assert client.get("/models", headers=shown).status_code == 200
    try:
        guarded.token_file.write_text(f"predict {new}\n")
        give_up_at = time.monotonic() + 5
        while client.get("/models", headers=shown).status_code != 401:
            assert time.monotonic() < give_up_at
            time.sleep(0.05)
        assert client.get("/models", headers=newly_shown).status_code == 200
    finally:
        guarded.token_file.write_text(kept)
    time.sleep(1.1)
    assert client.get("/models", headers=shown).status_code == 200


def test_a_stop_answers_what_was_asked_over_tls(guarded):
    shown = {"authorization": f"Bearer {TOKENS['predict']}"}
    statuses: list[int] = []
    with httpx.Client(base_url=guarded.server.url, verify=guarded.made.trusting(), headers=shown) as client:
        assert client.get("/models").status_code == 200
        guarded.server.process.send_signal(signal.SIGTERM)
        with contextlib.suppress(httpx.TransportError):
            while True:
                statuses.append(client.post("/predict/affine", json={"inputs": {"x": 2}}).status_code)
    assert guarded.server.process.wait(20) == 0
    assert set(statuses) <= {200, 503}


def test_no_secret_is_logged(guarded):
    """Last: all has been asked by then."""
    log = guarded.server.log.read_text()
    assert "setting tls_key_password = ********** (environment)" in log
    assert f"setting token_file = {guarded.token_file} (flag)" in log
    for secret in (PASSWORD, *TOKENS.values()):
        assert secret not in log
    assert "Traceback" not in log


def test_callers_must_show_a_certificate_too(tmp_path):
    """Health is enough for it, so nothing waits for the model."""
    made = make_certificates(tmp_path)
    files = ("--tls-certificate", made.certificate, "--tls-key", made.key, "--tls-client-ca", made.authority)
    ours = made.trusting(as_client=True)
    with serving(ONE, "--grpc-port", "0", *files, verify=ours, wait=False) as server:
        assert server.client.get("/healthz").status_code == 200
        with httpx.Client(base_url=server.url, verify=made.trusting()) as bare, pytest.raises(httpx.TransportError):
            bare.get("/healthz")
        with Client(server.url, verify=ours) as client:
            assert client.models()["models"]
        address = Guarded(server, made, tmp_path).grpc
        root = made.authority.read_bytes()
        pair = (made.client_key.read_bytes(), made.client_certificate.read_bytes())
        live = "/inference.GRPCInferenceService/ServerLive"
        with grpc.secure_channel(address, grpc.ssl_channel_credentials(root, *pair)) as channel:
            assert channel.unary_unary(live)(b"", timeout=10) == b"\x08\x01"
        bare_credentials = grpc.ssl_channel_credentials(root)
        with grpc.secure_channel(address, bare_credentials) as channel, pytest.raises(grpc.RpcError):
            channel.unary_unary(live)(b"", timeout=10)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--token-file", "nothing"], "token file nothing: no such file or directory"),
        (["--tls-certificate", "nothing"], "TLS takes both"),
        (["--tls-certificate", "nothing", "--tls-key", "nothing"], "tls_certificate nothing: no such file"),
        (["--admin", "maybe"], "'maybe' is not one of 'auto', 'on', 'off'"),
        (["--tls-key-password", "x"], "No such option"),
    ],
)
def test_a_start_that_cannot_be_secure_does_not_happen(tmp_path, options, sentence):
    command = [sys.executable, "-m", "server.command_line", "serve", str(ONE), "--port", "0", *options]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2
    assert sentence in done.stderr
    assert os.listdir(tmp_path) == []
