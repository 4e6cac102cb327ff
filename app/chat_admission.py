"""May this chat run? Decided before anything is saved, with the checkpoint's template and tokenizer.

A worker renders again, and has the last word where either is not published or the answer is not certain here.
"""

from dataclasses import replace

from app.admission import Tokenizer, longest_prompt
from app.chat_rendering import rendered
from models.chat import Chat
from models.chat_template import TemplateSource, without_template
from models.errors import ChatError, PromptError
from models.presence import CheckpointInfo
from models.sampling import Settings


def check_chat(
    chat: Chat, settings: Settings, info: CheckpointInfo, template: TemplateSource | None, tokenizer: Tokenizer | None
) -> int | None:
    """Tokens of a chat that this checkpoint can continue; None where only the worker knows.

    `tokenizer` parses special tokens. Raises ChatError for a checkpoint without a template and, with the template's own
    words, for a chat that it does not take; PromptError with the numbers for a chat that is too long.
    """
    if not info.has_chat_template:
        raise without_template(info.name)
    text = None if template is None else rendered(chat, template, name=info.name)
    if template is None or text is None or tokenizer is None:
        return None
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    if not _is_exact(ids, chat, info, template, tokenizer):
        return None
    if not ids:
        raise PromptError(f"The chat becomes no token at all in {info.name}; say something else.", field="messages")
    limit = longest_prompt(settings, info)
    if len(ids) > limit:
        raise PromptError(
            f"The chat has {len(ids)} tokens, what its template adds included, and the context of {info.name} holds "
            f"{info.context_length}, prompt and output together; shorten the chat to at most {limit} tokens.",
            field="messages",
        )
    return len(ids)


def _is_exact(ids: list[int], chat: Chat, info: CheckpointInfo, template: TemplateSource, tokenizer: Tokenizer) -> bool:
    """Whether these are the ids that the worker sends.

    It sends a control token that comes from a message as text. That is another number of tokens, mostly a larger one:
    neither number is a bound of the other, so such a chat is left to the worker. It shows by a number of added tokens
    that is not the template's own, which a chat of letters has.
    """
    controls = {i for i, token in tokenizer.get_added_tokens_decoder().items() if not token.content.isspace()}
    try:
        plain = rendered(_of_letters(chat), template, name=info.name)
    except ChatError:
        return False  # the template wants more of a message than a letter
    if plain is None:
        return False
    plain_ids = tokenizer.encode(plain, add_special_tokens=False).ids
    return sum(i in controls for i in ids) == sum(i in controls for i in plain_ids)


def _of_letters(chat: Chat) -> Chat:
    """The chat with a letter for every message that says anything."""
    return Chat(tuple(replace(m, content="a") if m.content.strip() else m for m in chat.messages))
