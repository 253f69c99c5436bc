"""How a request was served, as the headers that replies carry in every protocol."""

from __future__ import annotations

from server.dispatcher import Provenance


def headers_of(how: Provenance) -> list[tuple[bytes, bytes]]:
    """Returns the `x-batchd-...` headers."""
    bucket = "x".join(map(str, (how.bucket.rows, *how.bucket.lengths)))
    headers = [
        (b"x-batchd-batch-size", b"%d" % how.batch_size),
        (b"x-batchd-bucket", bucket.encode()),
        (b"x-batchd-padding", b"%.3f" % how.padding_ratio),
        (b"x-batchd-queue-ms", b"%.3f" % (how.queue_s * 1000)),
        (b"x-batchd-compute-ms", b"%.3f" % (how.compute_s * 1000)),
        (b"x-batchd-reason", how.reason.encode()),
    ]
    if how.reproducible:
        headers.append((b"x-batchd-reproducible", how.reproducible.encode()))
    return headers
