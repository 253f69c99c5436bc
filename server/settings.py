"""Every setting of the server, in one frozen object: flag > environment > file > default.

flag          --queue-limit-examples 512
environment   BATCHD_QUEUE_LIMIT_EXAMPLES=512
file          queue_limit_examples = 512        in ./batchd.toml, or the file that BATCHD_CONFIG names
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, SecretStr, ValidationError

from server.errors import BatchdError

DEFAULT_FILE = Path("batchd.toml")
_PREFIX = "BATCHD_"
_MIB = 1024 * 1024


class SettingsError(BatchdError):
    """A setting is unknown, of the wrong type, or out of its range; the message lists all that are."""


class Settings(BaseModel):
    """How the server runs. Names carry the unit; `source(name)` says where a value came from."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)
    _sources: dict[str, str] = PrivateAttr(default_factory=dict)

    host: str = Field("127.0.0.1", description="address to listen on")
    port: int = Field(8000, ge=0, le=65535, description="TCP port; 0 takes a free one")
    grpc_port: int | None = Field(None, ge=0, le=65535, description="TCP port for gRPC; 0 takes a free one")
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="least level logged")
    log_format: Literal["text", "json"] = Field("text", description="lines for people, or an object a line")
    access_log: Literal["off", "errors", "all"] = Field("errors", description="which requests get a log line")
    tracing: Literal["off", "otel"] = Field("off", description="otel: spans to OpenTelemetry, by its OTEL_* variables")

    token_file: Path | None = Field(None, description="file of bearer tokens and their rights; see docs/security.md")
    admin: Literal["auto", "on", "off"] = Field(
        "auto", description="loading and unloading by request: by token, else on loopback only; or always; or never"
    )
    tls_certificate: Path | None = Field(None, description="PEM file: the certificate, and those up to its root")
    tls_key: Path | None = Field(None, description="PEM file: the certificate's private key")
    tls_key_password: SecretStr | None = Field(None, description="of the private key; environment or file only")
    tls_client_ca: Path | None = Field(None, description="PEM file: callers need a certificate signed by one of these")

    engine: str = Field(
        "static",
        description="how a batch is computed: static, while_loop, per_request, dynamic (also _depth, _hybrid, _auto)",
    )
    device: str = Field("auto", description="auto (first GPU, else CPU), cpu, or gpu:N")
    xla: Literal["auto", "off", "only"] = Field("auto", description="compile with XLA: where faster, never, always")
    max_batch_size: int | None = Field(None, ge=1, le=65536, description="rows; overrides the models' own")
    intra_op_threads: int | None = Field(None, ge=1, le=1024, description="TensorFlow threads within one op")
    inter_op_threads: int | None = Field(None, ge=1, le=1024, description="TensorFlow threads between ops")
    compile_budget_s: float = Field(30.0, ge=0, le=3600, description="seconds of XLA compiling per signature")
    compile_cache: bool = Field(True, description="keep compiled programs on disk between starts")
    seed: int = Field(0, ge=0, description="of the samples made for certification")
    reproducible: bool | None = Field(
        None, description="whether answers' bits must not depend on traffic; overrides the models' own"
    )
    models_loading_at_once: int = Field(
        1, ge=1, le=64, description="models; loading several at once disturbs the measured bucket times"
    )

    max_delay_ms: float = Field(
        0.0, ge=0, le=60_000, description="milliseconds that a request may wait for company; 0 never waits"
    )
    request_timeout_s: float = Field(
        30.0, gt=0, le=86_400, description="seconds until 504, for requests without timeout_ms"
    )
    queue_limit_examples: int = Field(1024, ge=1, description="examples that may wait; more are answered 503")
    queue_limit_bytes: int = Field(256 * _MIB, ge=1, description="bytes of arrays that may wait, as above")
    body_limit_bytes: int = Field(16 * _MIB, ge=1, description="bytes of one request body; more is answered 413")
    element_limit: int = Field(
        4 * _MIB, ge=1, description="values of one request, as JSON or as texts; more is answered 413"
    )
    nonfinite: Literal["token", "null", "error"] = Field(
        "token", description="what NaN and infinities are in JSON replies of v2 and TensorFlow Serving"
    )
    batch_timeout_s: float = Field(
        30.0, gt=0, le=86_400, description="seconds after which a running batch's engine process is killed"
    )
    ping_interval_s: float = Field(5.0, gt=0, le=3600, description="seconds between checks of an idle engine process")
    ping_timeout_s: float = Field(
        10.0, gt=0, le=3600, description="seconds after which an engine process that doesn't answer a check is killed"
    )
    load_timeout_s: float = Field(
        600.0, gt=0, le=86_400, description="seconds that loading may go on without progress before it counts as hung"
    )

    connection_limit: int = Field(
        4096, ge=1, le=1_000_000, description="HTTP connections open at once; more are answered 503"
    )
    keep_alive_s: float = Field(
        75.0, gt=0, le=86_400, description="seconds until a connection without a request is closed"
    )
    header_timeout_s: float = Field(
        10.0, gt=0, le=3600, description="seconds until 408 for a request's head that isn't complete"
    )
    body_timeout_s: float = Field(
        10.0, gt=0, le=3600, description="seconds until 408 for a body of which no further KiB arrives"
    )
    write_timeout_s: float = Field(
        30.0, gt=0, le=3600, description="seconds until a connection is dropped that takes no further 64 KiB of a reply"
    )
    url_limit_bytes: int = Field(8192, ge=64, le=65536, description="bytes of a URL; more is answered 414")
    header_limit: int = Field(100, ge=1, le=10_000, description="headers of one request; more are answered 431")
    header_limit_bytes: int = Field(
        32_768, ge=256, le=1_048_576, description="bytes of one request's headers; more are answered 431"
    )

    drain_delay_s: float = Field(
        0.0, ge=0, le=3600, description="seconds between not ready and refusing requests, after SIGTERM"
    )
    drain_timeout_s: float = Field(
        30.0, ge=0, le=3600, description="seconds that queued requests have to finish, after SIGTERM"
    )
    close_timeout_s: float = Field(
        5.0, gt=0, le=3600, description="seconds that connections have to end after that, before they are dropped"
    )
    restart_backoff_s: float = Field(0.5, gt=0, le=60, description="seconds before a dead engine's first restart")
    restart_backoff_limit_s: float = Field(30.0, gt=0, le=3600, description="seconds between later restarts, most")
    triton_metrics: bool = Field(False, description="export the metrics under Triton's names as well")

    def source(self, name: str) -> str:
        """Returns "flag", "environment", "file" or "default"."""
        return self._sources.get(name, "default")

    @classmethod
    def secret(cls, name: str) -> bool:
        """Whether a setting's value is never shown, nor taken from the command line, which others can see."""
        return name in cls.model_fields and SecretStr in get_args(cls.model_fields[name].annotation)

    def lines(self) -> list[str]:
        """Returns one line for each effective value and where it came from."""
        return [f"{name} = {getattr(self, name)} ({self.source(name)})" for name in type(self).model_fields]


def load_settings(
    flags: Mapping[str, Any], environment: Mapping[str, str] | None = None, file: Path | None = None
) -> Settings:
    """Merges the four sources; a flag that is None counts as not given. Raises SettingsError."""
    environment = os.environ if environment is None else environment
    origins: dict[str, dict[str, Any]] = {
        "file": _from_file(environment, file),
        "environment": {
            name: environment[_PREFIX + name.upper()]
            for name in Settings.model_fields
            if _PREFIX + name.upper() in environment
        },
        "flag": {name: value for name, value in flags.items() if value is not None},
    }
    merged: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for origin, values in origins.items():
        merged |= values
        sources |= dict.fromkeys(values, origin)
    try:
        settings = Settings(**merged)
    except ValidationError as error:
        raise SettingsError(_explain(error, sources)) from None
    settings._sources.update(sources)
    return settings


def _from_file(environment: Mapping[str, str], file: Path | None) -> dict[str, Any]:
    named = file or (Path(environment["BATCHD_CONFIG"]) if environment.get("BATCHD_CONFIG") else None)
    path = named or DEFAULT_FILE
    try:
        return tomllib.loads(path.read_text())
    except FileNotFoundError:
        if named is None:
            return {}
        raise SettingsError(f"settings file {path}: no such file") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SettingsError(f"settings file {path}: {error}") from None


def _explain(error: ValidationError, sources: Mapping[str, str]) -> str:
    lines = []
    for problem in error.errors():
        name = str(problem["loc"][0])
        origin = sources.get(name, "default")
        if problem["type"] == "extra_forbidden":
            lines.append(f"setting {name!r} (from {origin}): there is no such setting")
        else:
            got = "" if Settings.secret(name) else f", got {problem['input']!r}"
            lines.append(f"setting {name!r} (from {origin}): {problem['msg']}{got}")
    return "; ".join(lines)
