"""What the answer to a readiness question says: ready, still loading, or not for us at all."""

from __future__ import annotations

from qualify.engines.control import Answer
from qualify.engines.protocol import Readiness

_REFUSALS = {
    401: "it asks for a key",
    403: "it does not let us in",
    404: "it does not know that path",
    405: "it does not take that request there",
    410: "it says that nothing is there any more",
}
_REMEDIES = {
    401: "qualify sends no key: start the server without one, or attach to it behind a proxy "
    "that adds the key.",
    403: "Let requests from this machine through, or attach to the server's own address.",
}
_OTHER = "Check the address, without a path, and the engine: that the campaign names."


def readiness_of(answer: Answer, path: str) -> Readiness:
    """200 is ready; 5xx and 429 pass by themselves; a refusal or a redirect never will."""
    if answer.status is None:
        return Readiness(False, False, answer.text)
    if answer.ok:
        return Readiness(True, True, "ready")
    said = _message(answer) or answer.text.strip()[:200] or "no body"
    return Readiness(True, False, f"{answer.status}: {said}", _refusal(answer, path))


def _refusal(answer: Answer, path: str) -> tuple[str, str] | None:
    status = answer.status
    if status is not None and 300 <= status < 400:
        where = answer.location or "an address that it does not name"
        return (
            f"answers {path} with {status}: it redirects to {where}",
            "Attach to that address itself: redirects are not followed.",
        )
    why = _REFUSALS.get(status or 0)
    if why is None:
        return None
    return f"answers {path} with {status}: {why}", _REMEDIES.get(status or 0, _OTHER)


def _message(answer: Answer) -> str | None:
    error = answer.json.get("error") if isinstance(answer.json, dict) else None
    message = error.get("message") if isinstance(error, dict) else None
    return message if isinstance(message, str) else None
