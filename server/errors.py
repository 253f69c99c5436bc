"""Everything batchd raises on purpose, and the HTTP status each one suggests.

    BatchdError                       500
    ├── InvalidInput                  400   the request doesn't fit the signature
    ├── ExampleRejected               400   the model's own function refuses this example
    ├── Unauthenticated               401   no token, or one that isn't known
    ├── Forbidden                     403   the caller may not do this
    ├── UnknownModel                  404
    ├── PayloadTooLarge               413
    │   └── TooManyExamples                 more than may wait at once
    ├── UnknownEncoding               415   the body is compressed in a way that isn't known
    ├── ModelUnavailable              503   try again after `retry_after_s`
    │   ├── QueueFull
    │   │   └── DeadlineUnreachable         what waits already would take longer than allowed
    │   ├── Draining
    │   └── EngineDied
    ├── DeadlineExceeded              504
    ├── LoadFailed                    400   a model that a request asked to load can't be; what served, still does
    ├── Unsupported                   501   the protocol has it, batchd doesn't
    ├── ModelLoadError                500   the model file is missing, broken, or declares no model
    ├── CertificationError            500   batched differs from per-example, or samples don't fit
    └── OwnershipError                500   an answer came back for a request that didn't ask for it

Messages are sentences for the caller: what, where, and what to try. Only the edge (the protocol folders)
turns an error into a reply. No TensorFlow here: the HTTP process imports this module.
"""

from __future__ import annotations

from typing import ClassVar


class BatchdError(Exception):
    """Base of all deliberate errors; `message` is a sentence, `status` the HTTP status it suggests.

    `outcome`: what metrics call a request that ends so.
    """

    status: ClassVar[int] = 500
    outcome: ClassVar[str] = "failed"
    retry_after_s: float | None = None

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class InvalidInput(BatchdError):
    """The request doesn't fit the model's signature; the message names the input."""

    status = 400
    outcome = "invalid"


class ExampleRejected(BatchdError):
    """The per-example function raised on this example; the message is the function's own.

    `rows`: which examples of the request; where it has several, the message names them too. `row`: the first.
    """

    status = 400
    outcome = "rejected"

    def __init__(self, message: str, rows: tuple[int, ...] = (0,)) -> None:
        super().__init__(message)
        self.rows = rows

    @property
    def row(self) -> int:
        """The first row that failed."""
        return self.rows[0]


class Unauthenticated(BatchdError):
    """A token is needed, and none came that is known; `challenge` is what the caller is told by header."""

    status = 401
    outcome = "unauthenticated"

    def __init__(self, message: str, problem: str = "") -> None:
        super().__init__(message)
        self.challenge: str | None = f'Bearer error="{problem}"' if problem else "Bearer"


class Forbidden(BatchdError):
    """The caller may not do this; with `right`, a token that has that right would."""

    status = 403
    outcome = "forbidden"

    def __init__(self, message: str, right: str = "") -> None:
        super().__init__(message)
        self.challenge = f'Bearer error="insufficient_scope", scope="{right}"' if right else None


class UnknownModel(BatchdError):
    """No model, version or signature of that name is served."""

    status = 404
    outcome = "unknown_model"


class PayloadTooLarge(BatchdError):
    """The request body exceeds the limit."""

    status = 413
    outcome = "too_large"


class TooManyExamples(PayloadTooLarge):
    """The request has more examples than may wait at once, even in an empty queue."""


class UnknownEncoding(BatchdError):
    """The body's Content-Encoding isn't known."""

    status = 415


class Unsupported(BatchdError):
    """What a protocol offers and batchd doesn't."""

    status = 501


class ModelUnavailable(BatchdError):
    """The model can't answer now; `retry_after_s` says when to try again."""

    status = 503
    outcome = "unavailable"

    def __init__(self, message: str, retry_after_s: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class QueueFull(ModelUnavailable):
    """The queue of this model is at its bound."""

    outcome = "queue_full"


class DeadlineUnreachable(QueueFull):
    """By the measured times, the queue is too long for the request's deadline."""

    outcome = "unreachable"


class Draining(ModelUnavailable):
    """The server is shutting down or the model is being unloaded."""

    outcome = "draining"


class EngineDied(ModelUnavailable):
    """The model's engine process ended while it held the request."""

    outcome = "engine_died"


class DeadlineExceeded(BatchdError):
    """The request's deadline passed before its answer was ready."""

    status = 504
    outcome = "expired"


class ModelLoadError(BatchdError):
    """A model file or module can't be loaded, or doesn't register what was asked for."""


class CertificationError(BatchdError):
    """The batched program was not shown to equal the per-example function."""


class LoadFailed(BatchdError):
    """A request asked for a model to be loaded, and that failed; what served before still does."""

    status = 400


class OwnershipError(BatchdError):
    """An engine's answer doesn't belong to the request that it was matched with."""

    outcome = "disowned"
