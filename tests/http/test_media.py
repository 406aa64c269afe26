"""Content-Type, Content-Encoding and Accept."""

from __future__ import annotations

import pytest
from starlette.requests import Request

from tidelog.client.arrow_stream import Compression, accepting
from tidelog.services.http.answers.part_answer import FETCH_PART_MEDIA
from tidelog.services.http.media import Media, answer_codec, answer_media, body_encoding, body_media
from tidelog.storage.errors import UnsupportedMedia
from tidelog.wire.errors import NotAcceptable

OFFERED = (Media.JSON, Media.NDJSON, Media.ARROW)


def request(**headers: str) -> Request:
    pairs = [(name.replace("_", "-").encode(), value.encode("latin-1")) for name, value in headers.items()]
    return Request({"type": "http", "headers": pairs})


@pytest.mark.parametrize(
    ("accept", "media"),
    [
        ("", Media.JSON),
        ("*/*", Media.JSON),
        ("application/json", Media.JSON),
        ("application/*", Media.JSON),
        ("APPLICATION/X-NDJSON", Media.NDJSON),
        ("text/html, application/x-ndjson;q=0.9, */*;q=0.1", Media.NDJSON),
        ("application/vnd.apache.arrow.stream, application/json;q=0.5", Media.ARROW),
        ("application/json;q=0, */*", Media.NDJSON),
        ("*/*;q=0.1, application/json;q=0.05", Media.NDJSON),
    ],
)
def test_the_best_acceptable_type_is_answered(accept: str, media: Media) -> None:
    assert answer_media(request(accept=accept), OFFERED) is media
    assert answer_media(request(accept=accept), FETCH_PART_MEDIA) is media, (
        "stored records only for those who name them"
    )


@pytest.mark.parametrize("compression", ["zstd", "lz4"])
def test_a_client_that_takes_stored_records_gets_arrow_of_a_broker_without_them(compression: Compression) -> None:
    asked = request(accept=accepting(compression, stored=True))
    assert answer_media(asked, FETCH_PART_MEDIA) is Media.STORED
    assert answer_media(asked, OFFERED) is Media.ARROW
    assert answer_codec(asked, ("zstd", "lz4")) == compression


@pytest.mark.parametrize(
    ("accept", "codec"),
    [
        ("", None),
        ("application/vnd.apache.arrow.stream", None),
        ("application/vnd.apache.arrow.stream; codecs=zstd", "zstd"),
        ("application/vnd.apache.arrow.stream;codecs=lz4", "lz4"),
        ('application/vnd.apache.arrow.stream; codecs="brotli, LZ4, zstd"', "lz4"),
        ("application/vnd.apache.arrow.stream; codecs=snappy", None),
        ('application/vnd.apache.arrow.stream; codecs="', None),
    ],
)
def test_the_first_known_codec_compresses_the_answer(accept: str, codec: str | None) -> None:
    assert answer_codec(request(accept=accept), ("zstd", "lz4")) == codec
    if accept:
        assert answer_media(request(accept=accept), OFFERED) is Media.ARROW


@pytest.mark.parametrize(
    "accept", ["text/html", "application/json;q=0", "*/*;q=0", ";;;", "application/json;q=nan", ","]
)
def test_an_accept_that_cannot_be_met_is_refused_with_what_can(accept: str) -> None:
    with pytest.raises(NotAcceptable) as refusal:
        answer_media(request(accept=accept), OFFERED)
    assert refusal.value.known == tuple(media.value for media in OFFERED)


@pytest.mark.parametrize(
    ("content_type", "media"),
    [
        ("application/json", Media.JSON),
        ("Application/JSON; charset=UTF-8", Media.JSON),
        ('text/plain;charset="utf-8"', Media.TEXT),
        ("application/x-ndjson", Media.NDJSON),
        ("application/vnd.apache.arrow.stream", Media.ARROW),
    ],
)
def test_a_body_is_read_as_its_content_type_says(content_type: str, media: Media) -> None:
    assert body_media(request(content_type=content_type)) is media


@pytest.mark.parametrize(
    "content_type", ["", "text/html", "application/jsonx", "json", "text/plain; charset=utf-16", "a" * 10_000, "\xff"]
)
def test_another_content_type_or_charset_is_refused(content_type: str) -> None:
    with pytest.raises(UnsupportedMedia) as refusal:
        body_media(request(content_type=content_type))
    assert refusal.value.known


def test_content_encodings_are_gzip_zstd_or_none() -> None:
    assert body_encoding(request()) == "identity"
    assert body_encoding(request(content_encoding="GZIP")) == "gzip"
    with pytest.raises(UnsupportedMedia):
        body_encoding(request(content_encoding="gzip, gzip"))
    with pytest.raises(UnsupportedMedia):
        body_encoding(request(content_encoding="br"))
