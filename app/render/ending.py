"""How a run ended, in words a person can check: the reason, its evidence, and what did not happen."""

from typing import Final

from app.render.text import count, esc, quoted
from models.events import Ended, NearMiss, Status, StopReason, StopRecord
from models.sampling import Settings


def ending(ended: Ended, settings: Settings | None, *, is_scored: bool = False) -> str:
    """The stop record as one or two sentences of HTML. `is_scored`: the run read a given text, which was its budget."""
    sentence = _reason(ended)
    if is_scored and ended.stop.reason is StopReason.MAX_TOKENS:
        sentence = f"Scored: {count(ended.num_tokens, 'token')}, the whole of the given text."
    notes = [*_also(ended.stop), *_misses(ended.stop), *_budget(ended, settings)]
    details = f' <span class="dl-soft">({"; ".join(notes)})</span>' if notes else ""
    return f'<p class="dl-ending" data-reason="{esc(ended.stop.reason)}">{sentence}{details}</p>'


def reason_words(reason: StopReason | str) -> str:
    """A stop reason in two or three words, for tables."""
    return _WORDS.get(str(reason), str(reason))


def _reason(ended: Ended) -> str:
    stop = ended.stop
    return _SENTENCES[stop.reason].format(
        after=f"after {count(ended.num_tokens, 'token')}",
        tokens=count(ended.num_tokens, "token"),
        id=_id(stop),
        matched=quoted(stop.matched or ""),
        span=_span(stop),
        withheld=_withheld(stop),
        message=esc(stop.message or _WORDS[stop.reason]),
    )


def _id(stop: StopRecord) -> str:
    return "" if stop.token_id is None else f" (id {stop.token_id})"


def _span(stop: StopRecord) -> str:
    return "" if stop.span is None else f" at characters {stop.span[0]} to {stop.span[1]}"


def _withheld(stop: StopRecord) -> str:
    if not stop.withheld:
        return ""
    verb = "is" if stop.withheld == 1 else "are"
    return f" {count(stop.withheld, 'token').capitalize()} {verb} not in the text because of it."


def _also(stop: StopRecord) -> list[str]:
    return [f"also true at that step: {esc(reason)}" for reason in stop.also]


def _misses(stop: StopRecord) -> list[str]:
    return [_miss(m) for m in stop.misses if m.stop != stop.matched]


def _miss(miss: NearMiss) -> str:
    if not miss.num_matched:
        return f"stop string {quoted(miss.stop)} never began"
    at = "" if miss.position is None else f" at token {miss.position}"
    return f"stop string {quoted(miss.stop)} got {miss.num_matched} of {count(len(miss.stop), 'character')}{at}"


def _budget(ended: Ended, settings: Settings | None) -> list[str]:
    is_cause = StopReason.MAX_TOKENS in (ended.stop.reason, *ended.stop.also)
    is_finished = ended.status is Status.FINISHED
    if settings is None or is_cause or not is_finished or ended.num_tokens >= settings.max_tokens:
        return []
    return [f"max_tokens {count(settings.max_tokens)} not reached"]


_WORDS: Final = {
    "eos": "end token",
    "stop_token": "stop token",
    "stop_string": "stop string",
    "constraint_complete": "constraint complete",
    "max_tokens": "max_tokens",
    "context_full": "context full",
    "cancelled": "stopped",
    "time_limit": "time limit",
    "worker_lost": "worker lost",
    "error:numerical": "the checkpoint's numbers are not finite",
    "error:out_of_memory": "out of memory",
    "error:checkpoint": "the checkpoint could not be loaded",
    "error:internal": "an internal error",
}

_SENTENCES: Final[dict[StopReason, str]] = {
    StopReason.EOS: "Ended: the checkpoint picked its end token{id} {after}.",
    StopReason.STOP_TOKEN: "Ended: stop token{id} {after}.",
    StopReason.STOP_STRING: "Ended: stop string {matched}{span} {after}.{withheld}",
    StopReason.CONSTRAINT_COMPLETE: "Ended: the constraint allows nothing more {after}.",
    StopReason.MAX_TOKENS: "Ended: max_tokens is used up, {tokens}. The text may be unfinished.",
    StopReason.CONTEXT_FULL: "Ended: prompt and output fill the context {after}. The text may be unfinished.",
    StopReason.CANCELLED: "Stopped by you {after}.",
    StopReason.TIME_LIMIT: "Ended: the time limit was reached {after}. The text may be unfinished.",
    StopReason.WORKER_LOST: "Failed: the worker was lost {after}, and after every new start. The text is partial.",
    StopReason.ERROR_NUMERICAL: "Failed {after}: {message}",
    StopReason.ERROR_OUT_OF_MEMORY: "Failed {after}: {message}",
    StopReason.ERROR_CHECKPOINT: "Failed {after}: {message}",
    StopReason.ERROR_INTERNAL: "Failed {after}: {message}",
}
