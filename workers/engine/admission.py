"""What the engine takes: a request is checked against the checkpoint and becomes a sequence, or is refused."""

from collections.abc import Iterable, Sized

from models.errors import ConstraintError, PromptError, SettingError
from models.presence import CheckpointInfo
from models.sampling import MAX_NEW_TOKENS, Settings
from workers.engine.checkpoint import Checkpoint
from workers.engine.constraint import Matcher
from workers.engine.sequence import Limits, Request, Sequence
from workers.engine.transcript import Transcript


def admit(checkpoint: Checkpoint, request: Request) -> Sequence:
    """The sequence of `request`, with its saved tokens read.

    Raises PromptError for a prompt that is empty, has ids outside the vocabulary or leaves no room for one token (for
    the whole text where one is scored, or the opening of a branch), SettingError for a setting that this checkpoint
    cannot have, ConstraintError for saved tokens, or an opening, that break the constraint.
    """
    _check_tokens(checkpoint, request)
    settings = request.settings
    if settings.seed is None:
        raise SettingError("seed: it is missing; a run's seed is drawn when it is submitted", field="seed")
    settings.check_vocabulary(checkpoint.info.vocab_size)
    if request.given is not None or request.opening:
        settings.check_given()
    banned_ids = checkpoint.banned_ids(settings)
    limits = Limits(checkpoint.info.context_length, frozenset(checkpoint.info.end_token_ids))
    vocabulary = checkpoint.vocabulary
    transcript = Transcript(
        vocabulary,
        settings,
        limits.end_token_ids | frozenset(settings.stop_token_ids),
        after=request.prompt_token_ids,
    )
    matcher = new_matcher(checkpoint, request.prompt_token_ids, settings)
    if matcher is not None:
        _check_opening(request.opening, matcher.fork())
    return Sequence(request, limits, transcript=transcript, banned_ids=banned_ids, matcher=matcher)


def new_matcher(checkpoint: Checkpoint, prompt_ids: Iterable[int], settings: Settings) -> Matcher | None:
    """The constraint of `settings` before an output's first token; None without one. Raises SettingError."""
    if settings.constraint is None:
        return None
    begins_text = all(checkpoint.vocabulary.is_special(token_id) for token_id in prompt_ids)
    return checkpoint.constraints.compile(settings.constraint, ignore_eos=settings.ignore_eos, begins_text=begins_text)


def check_ids(info: CheckpointInfo, prompt_ids: Sized, token_ids: Iterable[int]) -> None:
    """Raise PromptError for a prompt without tokens, and for one of `token_ids`, its own and others, that is none."""
    if not len(prompt_ids):
        raise PromptError(f"the prompt is empty, and {info.name} has no token that begins a text; type something")
    for token_id in token_ids:
        if not 0 <= token_id < info.vocab_size:
            raise PromptError(f"token id {token_id} is outside the vocabulary; ids go from 0 to {info.vocab_size - 1}")


def _check_tokens(checkpoint: Checkpoint, request: Request) -> None:
    info = checkpoint.info
    num_tokens = len(request.prompt_token_ids)
    all_ids = (*request.prompt_token_ids, *request.generated, *request.opening, *(request.given or ()))
    check_ids(info, request.prompt_token_ids, all_ids)
    if request.given is None:
        room_needed = 1 if request.settings.max_tokens else 0  # a run of no tokens only reads its prompt
        num_tokens += len(request.opening)
        if num_tokens + room_needed > info.context_length:
            raise PromptError(
                f"the prompt has {num_tokens:,} tokens and {info.name} has room for {info.context_length:,}, "
                "prompt and answer together; shorten the prompt"
            )
        num_common = min(len(request.generated), len(request.opening))
        if request.generated[:num_common] != request.opening[:num_common]:
            raise PromptError("the saved tokens are not those that the branch begins with; start it again")
    else:
        _check_text(request.given, num_tokens, checkpoint)
        if request.given[: len(request.generated)] != request.generated:
            raise PromptError("the saved tokens are not those of the text; start the run again", field="text")


def _check_opening(opening: tuple[int, ...], matcher: Matcher) -> None:
    """Walk `matcher` through the opening of a branch. Raises ConstraintError where it breaks the constraint."""
    for position, token_id in enumerate(opening):
        if not matcher.allowed()[token_id]:
            raise ConstraintError(
                f"the constraint does not allow token id {token_id} at output position {position}, where the branch "
                "has it; choose another token"
            )
        matcher.accept(token_id)


def _check_text(given: tuple[int, ...], num_prompt: int, checkpoint: Checkpoint) -> None:
    if not given:
        raise PromptError("the text has no token to score; type something", field="text")
    if num_prompt + len(given) > checkpoint.info.context_length:
        raise PromptError(
            f"the prompt has {num_prompt:,} tokens, the text {len(given):,}, and {checkpoint.info.name} has room for "
            f"{checkpoint.info.context_length:,}, both together; shorten the text",
            field="text",
        )
    if len(given) > MAX_NEW_TOKENS:
        raise PromptError(
            f"the text has {len(given):,} tokens and a run at most {MAX_NEW_TOKENS:,}; shorten the text", field="text"
        )
