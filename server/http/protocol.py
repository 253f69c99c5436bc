"""The HTTP protocol: uvicorn's, but what isn't HTTP at all gets an error of our form too."""

from __future__ import annotations

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from server.http.errors import error_body
from server.request_context import REQUEST_ID, new_request_id


class Protocol(HttpToolsProtocol):
    """Answers what the parser refuses: unknown methods, a path with raw bytes, contradicting lengths."""

    def send_400_response(self, msg: str) -> None:
        """Sends the error, and closes the connection, since where the next request begins is unknown."""
        body = error_body("this is not a valid HTTP request")
        head = (
            "HTTP/1.1 400 Bad Request\r\n"
            "content-type: application/json\r\n"
            f"content-length: {len(body)}\r\n"
            f"{REQUEST_ID.decode()}: {new_request_id().decode()}\r\n"
            "connection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()
