"""What can go wrong between a caller and the server.

    ClientError
    ├── ConnectionFailed        no reply: refused, reset, or silent for longer than the timeout
    ├── NotReady                `wait_ready` gave up (also a TimeoutError)
    └── ServerError             a reply that isn't a success; has .status and the server's sentence
        ├── InvalidInput        400, the request or the example itself is wrong: don't send it again
        ├── Unauthenticated     401, the server wants a token, and doesn't know this one
        ├── Forbidden           403, this token (or nobody from here) may do that
        ├── NotFound            404, no such model or signature
        ├── PayloadTooLarge     413
        ├── Overloaded          503, queue full, draining or restarting; has .retry_after_s
        └── DeadlineExceeded    504, the deadline passed before the answer was there

Inputs that can't be written as JSON are a plain `TypeError` or `ValueError`: they never leave the caller.
"""

from __future__ import annotations


class ClientError(Exception):
    """Base of everything that these clients raise about the server or the way to it."""


class ConnectionFailed(ClientError):
    """No reply came. `.request_was_sent` is False when the server certainly saw nothing of it."""

    def __init__(self, message: str, *, request_was_sent: bool = True) -> None:
        super().__init__(message)
        self.request_was_sent = request_was_sent


class NotReady(ClientError, TimeoutError):
    """The server didn't become ready in time; the message has its last answer."""


class ServerError(ClientError):
    """The server answered with an error: `.status` is the HTTP status, `str()` the server's sentence."""

    def __init__(self, message: str, *, status: int) -> None:
        super().__init__(message)
        self.status = status


class InvalidInput(ServerError):
    """400: the request is malformed, or the model's function rejects the example."""


class Unauthenticated(ServerError):
    """401: the server wants a token, and none came that it knows; see `token=`."""


class Forbidden(ServerError):
    """403: the token doesn't have the right that this takes."""


class NotFound(ServerError):
    """404: no such model, signature or path."""


class PayloadTooLarge(ServerError):
    """413: the body is larger than the server accepts."""


class Overloaded(ServerError):
    """503: not now. `.retry_after_s` is the server's advice in seconds, None when it gave none."""

    def __init__(self, message: str, *, status: int = 503, retry_after_s: float | None = None) -> None:
        super().__init__(message, status=status)
        self.retry_after_s = retry_after_s


class DeadlineExceeded(ServerError):
    """504: the request's deadline passed in the queue or while it ran."""


ERROR_OF_STATUS: dict[int, type[ServerError]] = {
    400: InvalidInput,
    401: Unauthenticated,
    403: Forbidden,
    404: NotFound,
    413: PayloadTooLarge,
    504: DeadlineExceeded,
}


def error_of_status(status: int, message: str, retry_after: str | None = None) -> ServerError:
    """The exception for an HTTP status, with the server's sentence. `retry_after` is that header's text."""
    if status == 503:
        return Overloaded(message, retry_after_s=_seconds(retry_after))
    return ERROR_OF_STATUS.get(status, ServerError)(message, status=status)


def _seconds(retry_after: str | None) -> float | None:
    try:
        return max(0.0, float(retry_after)) if retry_after is not None else None
    except ValueError:  # the header may be a date, which batchd never sends
        return None
