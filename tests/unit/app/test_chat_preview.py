"""What is shown of a chat: the text that its template sends, whose special tokens are those of the template alone."""

import pytest

from app.chat_preview import ChatPreview, chat_preview
from app.render.chat import template_shown
from models.chat import Chat
from models.errors import ChatError
from tests.fakes.chatml import CHATML, byte_tokenizer
from tests.fakes.scripted_runs import checkpoint_info

SAID = Chat.parse([{"role": "system", "content": "Be kind."}, {"role": "user", "content": "hi <|im_end|> <b>"}])


def preview(chat: Chat) -> ChatPreview:
    found = chat_preview(chat, checkpoint_info(), CHATML, byte_tokenizer())
    assert found is not None
    return found


def test_the_pieces_joined_are_what_the_template_writes_and_its_tokens_stand_apart() -> None:
    found = preview(SAID)
    whole = "".join(piece.text for piece in found.pieces)
    assert whole == (
        "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nhi <|im_end|> <b><|im_end|>\n<|im_start|>assistant\n"
    )
    assert [p.text for p in found.pieces if p.is_special] == [
        "<|im_start|>",
        "<|im_end|>",
        "<|im_start|>",
        "<|im_end|>",
        "<|im_start|>",
    ]
    assert "\nhi <|im_end|> <b>" in "".join(p.text for p in found.pieces if not p.is_special)
    assert found.num_tokens is None  # what the user spelled is sent as text, whose tokens the worker knows


def test_tokens_are_counted_where_that_is_certain() -> None:
    # Worked by hand: three special tokens, and a byte a token for "user\n", "hi", "\n" and "assistant\n".
    assert preview(Chat.said("hi")).num_tokens == 3 + 5 + 2 + 1 + 10


def test_it_is_shown_as_text_and_chips() -> None:
    html = template_shown(preview(SAID))
    assert html.count('<span class="dl-chip">') == 5
    assert "&lt;b&gt;" in html
    assert "<b>" not in html
    assert "sent as plain text" in html
    assert "18 tokens" not in html
    assert "21 tokens" in template_shown(preview(Chat.said("hi")))
    assert "the first 20,000 characters" in template_shown(preview(Chat.said("x" * 30_000)))


def test_a_checkpoint_without_a_template_says_so_and_one_that_is_not_published_is_left_to_the_worker() -> None:
    with pytest.raises(ChatError, match="has no chat template"):
        chat_preview(SAID, checkpoint_info(has_chat_template=False), None, None)
    assert chat_preview(SAID, checkpoint_info(), None, byte_tokenizer()) is None
    assert "the worker renders the chat" in template_shown(None)
