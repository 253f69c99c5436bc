"""Schemathesis against /openapi.json: whatever it sends, no 5xx, and only what the description announces."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.support.protocol_service import Background, protocol_service

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
MODES = (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)
METHODS = ("DELETE", "GET", "OPTIONS", "PATCH", "POST", "PUT", "TRACE")


@pytest.fixture(scope="module")
def served() -> Iterator[Background]:
    with protocol_service() as served:
        yield served


@pytest.fixture(scope="module")
def schema(served):
    return schemathesis.openapi.from_url(f"http://{served.http}/openapi.json")


def operations(schema) -> list:
    return [found.ok() for found in schema.get_all_operations()]


def explore(operation, mode: GenerationMode, model: str | None, max_examples: int) -> None:
    """Sends so many cases of one operation, to that model if one is named."""

    @settings(max_examples=max_examples, deadline=None, suppress_health_check=list(HealthCheck))
    @given(case=operation.as_strategy(generation_mode=mode))
    def check(case):
        if model:
            case.path_parameters["model"] = model
        case.call_and_validate(checks=CHECKS)

    check()


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.value)
def test_every_operation(served, schema, mode):
    """With names of models at random, and with that of one that is there."""
    tried = 0
    for operation, model in product(operations(schema), (None, "add")):
        has_input = bool(operation.body or operation.path_parameters)
        if (mode is GenerationMode.NEGATIVE and not operation.body) or (model and "{model}" not in operation.path):
            continue

        explore(operation, mode, model, max_examples=10 if has_input else 1)
        if model and operation.path.endswith("/unload"):
            httpx.post(f"http://{served.http}/v2/repository/models/{model}/load").raise_for_status()
        tried += 1
    assert tried > 10


def test_no_operation_takes_another_method(served, schema):
    known = {(operation.path, operation.method.upper()) for operation in operations(schema)}
    with httpx.Client(base_url=f"http://{served.http}") as client:
        for path in sorted({path for path, _ in known}):
            for method in METHODS:
                if (path, method) in known:
                    continue
                reply = client.request(method, path.format(model="add", version="1", label="1", name="add"))
                assert (reply.status_code, list(reply.json())) == (405, ["error"]), (method, path)
                assert reply.headers["allow"]
