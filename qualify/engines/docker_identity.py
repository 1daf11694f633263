"""Which image a plan means, as far as this machine can tell, for the plan's hash."""

from __future__ import annotations

from qualify.engines.docker_client import connect
from qualify.engines.docker_image import local_image
from qualify.engines.docker_nouns import ImagePin
from qualify.errors import EngineError


def image_identity(pin: ImagePin) -> str:
    """The pin where there is one, else the id of what the name means here now.

    The name alone where no Docker Engine answers or the image is not here yet: a plan can be
    made anywhere.
    """
    known = pin.digest or pin.id
    if known is not None:
        return known
    try:
        client = connect()
    except EngineError:
        return pin.name
    try:
        found = local_image(client, pin)
        return found.id if found is not None else pin.name
    finally:
        client.close()
