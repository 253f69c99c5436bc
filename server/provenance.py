"""How a request was served, as the headers that replies carry in every protocol."""

from __future__ import annotations

from functools import lru_cache

from server.model_description import Bucket
from server.prediction import Provenance


def headers_of(how: Provenance) -> list[tuple[bytes, bytes]]:
    """Returns the `x-batchd-...` headers."""
    headers = [
        (b"x-batchd-batch-size", b"%d" % how.batch_size),
        (b"x-batchd-bucket", _bucket_name(how.bucket)),
        (b"x-batchd-padding", b"%.3f" % how.padding_ratio),
        (b"x-batchd-queue-ms", b"%.3f" % (how.queue_s * 1000)),
        (b"x-batchd-compute-ms", b"%.3f" % (how.compute_s * 1000)),
        (b"x-batchd-reason", how.reason.encode()),
    ]
    if how.reproducible:
        headers.append((b"x-batchd-reproducible", how.reproducible.encode()))
    return headers


@lru_cache(maxsize=1024)
def _bucket_name(bucket: Bucket) -> bytes:
    return "x".join(map(str, (bucket.rows, *bucket.lengths))).encode()
