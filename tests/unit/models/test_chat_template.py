"""A published chat template: what is read back, also from a newer worker, and what its digest covers."""

import json

import pytest

from models.chat_template import TemplateSource

SOURCE = TemplateSource("{{ bos_token }}é\ud800", {"bos_token": "<s>"})


def test_what_is_written_is_read_back() -> None:
    assert TemplateSource.decode(SOURCE.encode()) == SOURCE


def test_what_only_a_newer_worker_says_is_ignored() -> None:
    newer = {**json.loads(SOURCE.encode()), "color": "blue"}
    assert TemplateSource.decode(json.dumps(newer).encode()) == SOURCE


@pytest.mark.parametrize(
    "data",
    [b"", b"\xff", b"7", b"[]", b"{}", b'{"template": "a"}', b'{"template": 7, "special_tokens": {}}',
     b'{"template": "a", "special_tokens": 7}', b'{"template": "a", "special_tokens": {"bos_token": 7}}'],
)  # fmt: skip
def test_anything_else_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the words are those of several readers
        TemplateSource.decode(data)


def test_the_digest_covers_all_of_it() -> None:
    others = [TemplateSource("{{ bos_token }}", SOURCE.special_tokens), TemplateSource(SOURCE.template, {})]
    assert len({source.digest for source in (SOURCE, *others)}) == 3
    assert TemplateSource(SOURCE.template, dict(SOURCE.special_tokens)).digest == SOURCE.digest
