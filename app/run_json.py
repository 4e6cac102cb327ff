"""Runs and comparisons as the JSON objects that the commands and the HTTP routes answer with.

The keys before the line "beyond the contract" are fixed; later ones may be added. The values are strict JSON.
"""

import base64
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from app.compare import divergence_json, explain, figures, first_divergence
from app.record import RunDetail, text_of
from models.beams import BeamStep, BeamsTraced
from models.chat import Chat, prompt_messages, prompt_text
from models.events import Candidate, Ended, Event, Passes, RunKind, Started, Status, Timing, TokenPicked, to_json
from models.sampling import Settings
from models.score import score_figures


def run_json(run: RunDetail) -> dict[str, Any]:
    """One run. `stop` is null until it has ended. A run that scores a text has the figures of that as well."""
    started, prefilled, ended = run.started, run.prefilled, run.ended
    passes = ended.passes if ended else Passes()
    return {
        "id": run.id,
        "checkpoint": run.checkpoint,
        "prompt": run.prompt,
        "prompt_token_ids": list(started.prompt_token_ids) if started else [],
        "text": run.text,
        "settings": run.settings.as_dict(),
        "seed": run.settings.seed,
        "stop": to_json(ended.stop if ended else run.stop),
        "tokens": [_token_json(token) for token in run.tokens],
        "passes": to_json(passes),
        "kv": _kv_json(run),
        "timing": to_json(ended.timing if ended else Timing()),
        **_score_json(run),
        # beyond the contract
        "kind": run.kind.value,
        "messages": run.messages,
        "prompt_text": started.prompt_text if started else None,
        "beams": _beams_json(run.beams),
        "status": run.status.value,
        "num_prompt_tokens": prefilled.num_prompt_tokens if prefilled else None,
        "device": started.device if started else None,
        "dtype": started.dtype if started else None,
        "created_at": _time(run.created_at),
        "started_at": _time(run.started_at),
        "ended_at": _time(run.ended_at),
        "checkpoint_revision": run.checkpoint_revision,
        "weights_digest": run.weights_digest,
        "experiment_id": run.experiment_id,
        "arm_index": run.arm_index,
        "sample_index": run.sample_index,
        "parent_id": run.parent_id,
        "fork_position": run.fork_position,
        "opening_ids": list(run.opening_ids),
        "capsule": run.capsule,
        "title": run.title,
        "note": run.note,
        "is_starred": run.is_starred,
        "tags": list(run.tags),
    }


def comparison_json(
    runs: Sequence[RunDetail], *, baseline: int = 0, experiment_id: str | None = None
) -> dict[str, Any]:
    """The runs of a comparison, and for each the first divergence from the baseline arm under the same sample index.

    `divergence[i]["arm"]` is an index into `arms`; a run that does not differ has no entry.
    """
    references = {run.sample_index: run for run in runs if run.arm_index == baseline}
    divergence = [
        {"arm": index, **found}
        for index, run in enumerate(runs)
        if (found := _divergence_from(references[run.sample_index], run)) is not None
    ]
    return {
        "arms": [run_json(run) for run in runs],
        "baseline": baseline,
        "divergence": divergence,
        "prefill_passes": sum(run.ended.passes.prefill for run in runs if run.ended),
        # beyond the contract
        "id": experiment_id,
        "figures": [_figures_json(run) for run in runs],
    }


def _divergence_from(reference: RunDetail, run: RunDetail) -> dict[str, Any] | None:
    found = first_divergence(reference.tokens, run.tokens)
    if found is None:
        return None
    sentence = explain(found, a=f"arm {reference.arm_index}", b=f"arm {run.arm_index}")
    return {**divergence_json(found), "explanation": sentence}


def from_events(
    run_id: str, prompt: str | Chat, settings: Settings, *, checkpoint: str, events: Sequence[Event]
) -> RunDetail:
    """A run that was never saved, from its events, so that it is shown as a saved one is."""
    started = next((e.payload for e in events if isinstance(e.payload, Started)), None)
    ended = next((e.payload for e in events if isinstance(e.payload, Ended)), None)
    return RunDetail(
        id=run_id,
        status=ended.status if ended else Status.RUNNING,
        created_at=None,
        started_at=None,
        ended_at=None,
        enqueued_at=None,
        checkpoint=started.checkpoint if started else checkpoint,
        prompt=prompt_text(prompt),
        messages=prompt_messages(prompt),
        settings=settings,
        text=text_of(events),
        events=tuple(events),
        stop=ended.stop if ended else None,
    )


def _score_json(run: RunDetail) -> dict[str, Any]:
    """The contract's three first; of a run that generates nothing at all."""
    if run.kind is not RunKind.SCORE:
        return {}
    found = score_figures(run.tokens, is_greedy=run.settings.is_greedy)
    return {
        "logprob": found.logprob,
        "perplexity": found.perplexity,
        "first_impossible": to_json(found.first_impossible),
        # beyond the contract
        "mean_logprob": found.mean_logprob,
        "raw_logprob": found.raw_logprob,
        "raw_mean_logprob": found.raw_mean_logprob,
        "raw_perplexity": found.raw_perplexity,
        "given_text": run.given_text,
    }


def _token_json(token: TokenPicked) -> dict[str, Any]:
    return {
        "position": token.position,
        "token_id": token.token_id,
        "piece": token.piece,
        "visible": token.visible,
        "raw_logprob": token.raw_logprob,
        "logprob": token.logprob,
        "rank": token.rank,
        "entropy": token.entropy,
        "candidates": [_candidate_json(candidate) for candidate in token.candidates],
        "kept": dict(token.kept),
        # beyond the contract
        "text": token.text,
        "withheld": token.withheld,
        "bytes": base64.b64encode(token.token_bytes).decode("ascii"),
        "rank_processed": token.rank_processed,
        "entropy_processed": token.entropy_processed,
        "removed_mass": dict(token.removed_mass),
        "others": to_json(token.others),
        "elapsed_ms": token.elapsed_ms,
        "tax": to_json(token.tax),
    }


def _beams_json(beams: BeamsTraced | None) -> dict[str, Any] | None:
    """A beam search's lineage with its names; null for a run without."""
    if beams is None:
        return None
    return {
        "num_beams": beams.num_beams,
        "sequence_score": beams.sequence_score,
        "beam_indices": list(beams.beam_indices),
        "num_steps": beams.num_steps,
        "steps": [
            {
                part: [msgspec.structs.asdict(beam) for beam in getattr(step, part)]
                for part in BeamStep.__struct_fields__
            }
            for step in beams.steps
        ],
    }


def _candidate_json(candidate: Candidate) -> dict[str, Any]:
    return {
        "token_id": candidate.token_id,
        "piece": candidate.piece,
        "raw_logprob": candidate.raw_logprob,
        "logprob": candidate.logprob,
        "removed_by": candidate.removed_by,
        # beyond the contract
        "penalty": candidate.penalty,
        "noise": candidate.noise,
        "num_causes": candidate.num_causes,
        "causes": list(candidate.causes),
    }


def _kv_json(run: RunDetail) -> dict[str, Any]:
    if run.ended is not None:
        return {"positions": run.ended.kv_positions, "bytes": run.ended.kv_bytes}
    return {"positions": None, "bytes": run.prefilled.kv_bytes if run.prefilled else None}


def _figures_json(run: RunDetail) -> dict[str, Any]:
    """`mean_logprob` and `perplexity` are the raw ones here, as in the page's table; the other keys say which."""
    values = figures(run.tokens)
    return {
        "num_tokens": values.num_tokens,
        "mean_logprob": values.mean_logprob,
        "mean_logprob_processed": values.mean_logprob_processed,
        "perplexity": values.perplexity,
        "raw_mean_logprob": values.mean_logprob,
        "raw_perplexity": values.perplexity,
        "perplexity_processed": values.perplexity_processed,
        "distinct": {str(n): share for n, share in values.distinct.items()},
    }


def _time(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()
