"""Refusals as the client sees them: a status, a sentence, and the shape its route promises."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse

_OPENAI_TYPES = {
    400: "BadRequestError",
    404: "NotFoundError",
    405: "MethodNotAllowedError",
    413: "PayloadTooLargeError",
    503: "ServiceUnavailableError",
}


class ApiError(Exception):
    """A request that is refused or failed. `status` is HTTP's; `message` is one sentence or two."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


def native_error(error: ApiError) -> dict[str, Any]:
    """The body of a failed `/generate`, also its error event inside a stream."""
    kind = "invalid_request_error" if error.status < 500 else "internal_server_error"
    return {
        "error": {
            "message": error.message,
            "type": kind,
            "code": error.status,
            "retryable": error.status == 503,
        }
    }


def openai_error(error: ApiError) -> dict[str, Any]:
    """The body of a failed `/v1/...` request, before its first event."""
    return {
        "object": "error",
        "message": error.message,
        "type": _OPENAI_TYPES.get(error.status, "InternalServerError"),
        "param": None,
        "code": error.status,
    }


def error_response(path: str, error: ApiError) -> JSONResponse:
    """The answer to a request on `path` that did not get as far as a stream."""
    body = openai_error(error) if path.startswith("/v1/") else native_error(error)
    # A refused body may not have been read to its end, so that connection cannot be used again.
    headers = {"connection": "close"} if error.status == 413 else None
    return JSONResponse(body, status_code=error.status, headers=headers)


async def on_api_error(request: Request, error: Exception) -> JSONResponse:
    """Starlette's handler for ApiError."""
    assert isinstance(error, ApiError)
    return error_response(request.url.path, error)


async def on_unexpected(request: Request, error: Exception) -> JSONResponse:
    """Starlette's handler for a fault of our own: 500 with a sentence, the server lives on."""
    return error_response(
        request.url.path,
        ApiError(500, f"The server failed on this request: {type(error).__name__}."),
    )
