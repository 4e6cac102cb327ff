"""A branch: a new run that begins as another did, up to one of its tokens, and goes on from something else.

It has its parent's prompt, by token ids, its settings and its seed: nothing differs but what is put at the fork. Its
output begins with the parent's tokens before the fork, by ids, and with what was put there; the worker reads these
as it reads a text that is scored, and picks from there on, each position under the noise that the parent had for it.

A branch is made again by its own ids: prompt, opening, settings and seed, whether its parent is still there or not.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from app.admission import Tokenizer, check_text
from app.record import RunDetail
from models.errors import PromptError, RefusedError, SettingError
from models.events import RunKind
from models.presence import CheckpointInfo
from models.sampling import Settings


@dataclass(frozen=True, slots=True)
class Fork:
    """Where a branch leaves its parent, and with what: one token by its id, or a text."""

    position: int  # output position of the first token that is put in
    token_id: int | None = None
    text: str = ""


@dataclass(frozen=True, slots=True)
class Branch:
    """What makes a run a branch."""

    parent_id: str | None  # None: it is deleted
    position: int
    prompt_ids: tuple[int, ...]
    opening: tuple[int, ...]  # the tokens that its output begins with
    settings: Settings


def branch_of(
    parent: RunDetail,
    fork: Fork,
    info: CheckpointInfo,
    tokenizer: Tokenizer | None,
    *,
    max_tokens: int | None = None,
    max_characters: int,
) -> Branch:
    """The branch of `parent` at `fork`. `max_tokens` is its own budget, which has no influence on any distribution.

    Raises RefusedError where the parent has no such place or no branches, PromptError for what cannot be put there,
    SettingError for a budget that it leaves no room in.
    """
    _check_parent(parent, fork.position)
    put = _put_in(fork, info, tokenizer, max_characters=max_characters)
    before = [token.token_id for token in parent.tokens[: fork.position]]
    opening = (*before, *put)
    settings = parent.settings if max_tokens is None else parent.settings.with_changes(max_tokens=max_tokens)
    prompt_ids = parent.started.prompt_token_ids if parent.started else ()
    _check_room(len(prompt_ids), opening, settings, info)
    return Branch(parent.id, fork.position, prompt_ids, opening, settings)


def again(branch: RunDetail, info: CheckpointInfo) -> Branch:
    """`branch` once more.

    Raises RefusedError where its beginning is not known, PromptError for ids that the checkpoint lacks.
    """
    if not branch.opening_ids or branch.fork_position is None:
        raise RefusedError(f"Run {branch.id} is a branch, and the tokens that it began with were not saved with it.")
    if branch.started is None:
        raise RefusedError(
            f"Run {branch.id} is a branch that ended before a worker had read it, so there is nothing to make again; "
            "branch anew."
        )
    prompt_ids = branch.started.prompt_token_ids
    if outside := [i for i in (*prompt_ids, *branch.opening_ids) if not 0 <= i < info.vocab_size]:
        raise PromptError(
            f"Run {branch.id} has token id {outside[0]}, and the ids of {info.name} go from 0 to "
            f"{info.vocab_size - 1}: it is of another checkpoint of that name."
        )
    _check_room(len(prompt_ids), branch.opening_ids, branch.settings, info)
    return Branch(branch.parent_id, branch.fork_position, prompt_ids, branch.opening_ids, branch.settings)


def _check_parent(parent: RunDetail, position: int) -> None:
    if parent.kind is RunKind.SCORE:
        raise RefusedError("A scored text was given whole, so nothing branches from it; run its prompt instead.")
    if parent.settings.num_beams > 1:
        raise RefusedError("A beam search follows several texts at once, so nothing branches from it; set num_beams 1.")
    if parent.started is None or not 0 <= position < max(1, len(parent.tokens)):
        raise RefusedError(
            f"Run {parent.id} has {len(parent.tokens)} tokens, so it has no token {position} to branch at."
        )


def _put_in(fork: Fork, info: CheckpointInfo, tokenizer: Tokenizer | None, *, max_characters: int) -> Sequence[int]:
    if fork.token_id is not None:
        if not 0 <= fork.token_id < info.vocab_size:
            raise PromptError(
                f"Token id {fork.token_id} is outside the vocabulary; ids go from 0 to {info.vocab_size - 1}.",
                field="token_id",
            )
        return (fork.token_id,)
    check_text(fork.text, max_characters, field="text")
    if not fork.text:
        raise PromptError("Type the text to continue with, or choose a candidate.", field="text")
    if tokenizer is None:
        raise PromptError(
            f"The tokenizer of {info.name} is not known here, so a text cannot become tokens; choose a candidate.",
            field="text",
        )
    ids: list[int] = tokenizer.encode(fork.text, add_special_tokens=False).ids
    if not ids:
        raise PromptError(f"The text becomes no token at all in {info.name}; type other text.", field="text")
    return ids


def _check_room(num_prompt: int, opening: Sequence[int], settings: Settings, info: CheckpointInfo) -> None:
    if len(opening) >= settings.max_tokens:
        raise SettingError(
            f"max_tokens: it is {settings.max_tokens}, and the branch begins with {len(opening)} tokens; set it to at "
            f"least {len(opening) + 1}",
            field="max_tokens",
        )
    if num_prompt + len(opening) >= info.context_length:
        raise PromptError(
            f"The prompt has {num_prompt} tokens, the branch begins with {len(opening)}, and the context of "
            f"{info.name} holds {info.context_length}, all together; branch earlier."
        )
