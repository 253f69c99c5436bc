"""Many connections are accepted at once; those that speak TLS count, and have a time, before their handshake is done;
and the end waits for none."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from server.http.connections import ConnectionLimits
from server.tls import Tls
from tests.support.certificates import Certificates, make_certificates
from tests.support.fake_engine import FakeEngine
from tests.support.http_service import Service, running
from tests.support.raw_http import RawConnection, RawReply

HEALTH = b"GET /healthz HTTP/1.1\r\nhost: h\r\n\r\n"
LIMITS = ConnectionLimits(header_timeout_s=0.3)
PATIENT = replace(LIMITS, header_timeout_s=20)


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def tls(made) -> Tls:
    return Tls(certificate=made.certificate, key=made.key, password=None, client_ca=None)


async def ask(service: Service, made: Certificates) -> RawReply:
    streams = await asyncio.open_connection("127.0.0.1", service.port, ssl=made.trusting())
    async with RawConnection(*streams) as connection:
        connection.send(HEALTH)
        return await connection.reply()


def silent(service: Service) -> socket.socket:
    return socket.create_connection(("127.0.0.1", service.port))


async def until(is_so: Callable[[], bool]) -> None:
    give_up_at = time.monotonic() + 3
    while not is_so():
        assert time.monotonic() < give_up_at
        await asyncio.sleep(0.01)


def ended_early(service: Service, reason: str) -> float:
    return service.registry.get_sample_value("batchd_connections_ended_total", {"reason": reason}) or 0.0


async def test_callers_who_come_at_once_are_accepted_at_once():
    async with running(a=FakeEngine) as service:
        clients = [silent(service) for _ in range(100)]  # these are still the kernel's
        for _ in range(10):  # turns of the loop
            await asyncio.sleep(0)
        assert len(service.connections) == 100
        for each in clients:
            each.close()
        await until(lambda: len(service.connections) == 0)


async def test_who_never_begins_the_handshake_is_ended_in_time(made, tls):
    async with running(limits=LIMITS, tls=tls, a=FakeEngine) as service:
        clients = [silent(service) for _ in range(20)]
        clients[0].sendall(b"\x16\x03\x01\x02\x00")
        await until(lambda: len(service.connections) == 20)
        assert (await ask(service, made)).status == 200
        await until(lambda: len(service.connections) == 0)
        assert ended_early(service, "header_timeout") == 20
        for each in clients:
            each.close()


async def test_handshakes_count_and_a_flood_of_them_is_cut(made, tls):
    limits = replace(PATIENT, connections=3)
    async with running(limits=limits, tls=tls, a=FakeEngine) as service:
        clients = [silent(service) for _ in range(2)]
        await until(lambda: len(service.connections) == 2)
        assert (await ask(service, made)).status == 200
        await until(lambda: len(service.connections) == 2)
        clients.append(silent(service))
        await until(lambda: len(service.connections) == 3)
        reply = await ask(service, made)
        assert (reply.status, reply.closes) == (503, True)
        for _ in range(10):  # fewer at a time than the kernel keeps
            clients += [silent(service) for _ in range(30)]
            await asyncio.sleep(0.01)
        await until(lambda: ended_early(service, "limit") >= 40)
        assert len(service.connections) <= 3 + 256
        for each in clients:
            each.close()
        await until(lambda: len(service.connections) == 0)
        assert (await ask(service, made)).status == 200


@pytest.mark.parametrize("leaves", ["silent", "closed", "reset", "garbage", "half"])
async def test_the_end_waits_for_no_handshake(tls, leaves):
    async with running(limits=PATIENT, tls=tls, a=FakeEngine) as service:
        early = silent(service)
        await until(lambda: len(service.connections) == 1)
        clients = [silent(service) for _ in range(10)]  # these are still the kernel's
        for each in clients:
            if leaves == "garbage":
                each.sendall(b"GET / HTTP/1.1\r\n\r\n")
            elif leaves == "half":
                each.sendall(b"\x16\x03\x01\x02\x00")
            elif leaves != "silent":
                if leaves == "reset":
                    each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                each.close()
        began = time.monotonic()
        await service.listener.stop(service.listening, 1.0)
        assert time.monotonic() - began < 1.1
        assert len(service.connections) == 0
        for each in (early, *clients):
            each.close()


async def test_who_shakes_hands_at_the_end_is_answered(made, tls):
    async with running(limits=PATIENT, tls=tls, a=FakeEngine) as service:
        hanging = silent(service)
        asking = [asyncio.create_task(ask(service, made)) for _ in range(5)]
        await asyncio.sleep(0)
        await asyncio.sleep(0.001)
        await service.listener.stop(service.listening, 2.0)
        for reply in await asyncio.gather(*asking):
            assert reply.closes
            assert reply.status in (200, 503)
        hanging.close()


class Exhausted:
    """A listening socket of a process that has no descriptor left, for a while."""

    def __init__(self, listening: socket.socket, times: int) -> None:
        self._listening, self.left = listening, times

    def accept(self):
        if self.left:
            self.left -= 1
            raise OSError(errno.EMFILE, "Too many open files")
        return self._listening.accept()

    def fileno(self) -> int:
        return self._listening.fileno()


async def test_without_descriptors_accepting_rests_and_says_so_once(made, tls, caplog):
    caplog.set_level(logging.WARNING, logger="batchd")
    async with running(tls=tls, a=FakeEngine) as service:
        handshakes = service.listener._acceptor
        exhausted = Exhausted(service.listening, times=2)
        handshakes._listening = exhausted
        assert (await ask(service, made)).status == 200
        assert exhausted.left == 0
        handshakes._listening = service.listening
        said = [each for each in caplog.messages if "can't accept" in each]
        assert len(said) == 1
        assert "Too many open files" in said[0]


async def test_data_right_behind_the_handshake_is_read(made, tls):
    """The client's last flight and a large body may arrive as one."""
    body = b'{"inputs":{"x":[%s]}}' % b",".join([b"1"] * 200_000)
    async with running(tls=tls, double=FakeEngine) as service:
        loop = asyncio.get_running_loop()

        def post() -> bytes:
            with (
                socket.create_connection(("127.0.0.1", service.port)) as plain,
                made.trusting().wrap_socket(plain, server_hostname="127.0.0.1") as spoken,
            ):
                spoken.settimeout(5)
                spoken.sendall(b"POST /predict HTTP/1.1\r\nhost: h\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
                return spoken.recv(100)

        assert (await loop.run_in_executor(None, post)).startswith(b"HTTP/1.1 200 ")


async def test_callers_without_the_certificate_are_turned_away(made):
    tls = Tls(certificate=made.certificate, key=made.key, password=None, client_ca=made.authority)
    async with running(tls=tls, a=FakeEngine) as service:
        with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
            await ask(service, made)
        await until(lambda: len(service.connections) == 0)
