"""An address is looked at before anything starts."""

from __future__ import annotations

import pytest

from qualify.engines.address import base_url
from qualify.errors import UsageError


@pytest.mark.parametrize(
    "url",
    [
        "",
        "127.0.0.1:30000",
        "ftp://127.0.0.1",
        "http://",
        "http://127.0.0.1:99999",
        "http://127.0.0.1:0",
        "http://127.0.0.1:x",
        "http://[::1",
        "http://127.0.0.1:80/a?b=c",
        "http://127.0.0.1:80/#a",
        "http://127.0.0.1:80/\x1b[2J",
    ],
)
def test_what_is_no_address_is_refused_with_an_example(url: str) -> None:
    with pytest.raises(UsageError, match="is not the address of a server") as caught:
        base_url(url)
    assert "http://127.0.0.1:30000" in caught.value.remedy


def test_a_password_in_an_address_is_refused_and_not_repeated() -> None:
    with pytest.raises(UsageError) as caught:
        base_url("http://me:s3cret@127.0.0.1:30000")
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "kept"),
    [
        ("http://127.0.0.1:30000/", "http://127.0.0.1:30000"),
        ("https://engine.example/v2//", "https://engine.example/v2"),
        ("http://[::1]:8000", "http://[::1]:8000"),
    ],
)
def test_an_address_keeps_its_path_and_loses_its_last_slash(url: str, kept: str) -> None:
    assert base_url(url) == kept
