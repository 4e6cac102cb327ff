"""The engine: sequences go in, steps are taken, outputs come out.

A step gives every running sequence one forward pass: a chunk of the prompt for one that begins, one position for the
others. After its pass a sequence's raw logits become the processed distribution, the distribution and the noise of the
position become a pick, and the stop rules are applied. Each sequence stands alone: one that fails ends with its own
error, in the same step, and disturbs no other.

The engine belongs to one thread. It never waits: with nothing to do a step returns an empty list.
"""

import functools
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from models.errors import NumericalError, PromptError, RunError, SettingError
from models.events import Candidate, Ended, Prefilled, StopReason, TokenPicked
from workers.engine.cache import SequenceCache
from workers.engine.checkpoint import Checkpoint
from workers.engine.failures import reason_for
from workers.engine.ledger import LedgerEntry, write
from workers.engine.logits.pipeline import Row, process, unhealthy_rows
from workers.engine.runner import Runner, is_device_fault, is_out_of_memory
from workers.engine.sampler import pick
from workers.engine.scheduler import Chunk, Scheduler
from workers.engine.sequence import Limits, Request, Sequence
from workers.engine.stopping import Decision, interruption
from workers.engine.transcript import Transcript

__all__ = ["Engine", "Output", "Request"]

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Output:
    """One payload for the history of one sequence. The last of a sequence is its `Ended`."""

    sequence_id: str
    payload: Prefilled | TokenPicked | Ended


class Engine:
    """Runs sequences over one checkpoint, at most `num_rows` at a time, first come first served."""

    def __init__(
        self, checkpoint: Checkpoint, *, num_rows: int = 1, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        """`clock` gives seconds and never goes back."""
        self.checkpoint = checkpoint
        self._clock = clock
        self._runner = Runner(checkpoint)
        self._scheduler = Scheduler(num_rows, prefills_whole=checkpoint.info.prefills_whole)
        self._sequences: dict[str, Sequence] = {}
        self._caches: dict[str, SequenceCache] = {}
        self._limits = Limits(checkpoint.info.context_length, frozenset(checkpoint.info.end_token_ids))

    @property
    def has_work(self) -> bool:
        return bool(self._sequences)

    @property
    def num_active(self) -> int:
        """Sequences that were added and have not ended, waiting ones included."""
        return len(self._sequences)

    def add(self, request: Request) -> None:
        """Let a sequence wait for a row. Nothing of others changes, whatever is wrong with this one.

        Raises PromptError for a prompt that is empty, has ids outside the vocabulary or leaves no room for one token,
        SettingError for a setting that this checkpoint cannot have, ValueError for an id that is in use.
        """
        if request.sequence_id in self._sequences:
            raise ValueError(f"sequence {request.sequence_id} is already running")
        self._check_prompt(request)
        if request.settings.seed is None:
            raise SettingError("seed: it is missing; a run's seed is drawn when it is submitted", field="seed")
        request.settings.check_vocabulary(self.checkpoint.info.vocab_size)
        banned_ids = self.checkpoint.banned_ids(request.settings)
        silent_ids = self._limits.end_token_ids | frozenset(request.settings.stop_token_ids)
        vocabulary = self.checkpoint.vocabulary
        begins_text = all(vocabulary.is_special(token_id) for token_id in request.prompt_token_ids)
        transcript = Transcript(vocabulary, request.settings, silent_ids, begins_text=begins_text)
        self._sequences[request.sequence_id] = Sequence(
            request, self._limits, transcript=transcript, banned_ids=banned_ids
        )
        self._scheduler.add(request.sequence_id, len(self._sequences[request.sequence_id].cached_ids))

    def cancel(self, sequence_id: str, reason: StopReason = StopReason.CANCELLED) -> None:
        """End a sequence at the next step, for a reason from outside. One that has ended already is left alone."""
        if sequence_id in self._sequences:
            self._sequences[sequence_id].interrupts.add(reason)

    @torch.inference_mode()
    def step(self) -> list[Output]:
        """One pass for every running sequence; what happened to each, in order.

        A fault of the accelerator itself is raised: no sequence can go on, and none is to blame.
        """
        outputs: list[Output] = []
        for sequence in [s for s in self._sequences.values() if s.interrupts]:
            self._end(sequence, interruption(sequence.interrupts), outputs)
        plan = self._scheduler.plan()
        for sequence_id in plan.decode:
            self._guarded(self._decode, self._sequences[sequence_id], outputs)
        if plan.prefill is not None:
            prefill = functools.partial(self._prefill, plan.prefill)
            self._guarded(prefill, self._sequences[plan.prefill.sequence_id], outputs)
        return outputs

    def _guarded(
        self, advance: Callable[[Sequence, list[Output]], None], sequence: Sequence, outputs: list[Output]
    ) -> None:
        """Advance one sequence; what goes wrong ends that one alone, but for a fault of the device itself."""
        try:
            advance(sequence, outputs)
        except RunError as exc:
            reason, message = reason_for(exc), exc.message
        except Exception as exc:
            if is_device_fault(exc):
                raise
            _logger.exception("sequence %s failed", sequence.sequence_id)
            reason, message = StopReason.ERROR_INTERNAL, "the engine failed at this step; its log says where"
            if is_out_of_memory(exc):
                reason, message = (
                    StopReason.ERROR_OUT_OF_MEMORY,
                    "the device has no memory for this step; use fewer tokens",
                )
        else:
            return
        self._end(sequence, interruption({reason}), outputs, message=message)

    def _prefill(self, chunk: Chunk, sequence: Sequence, outputs: list[Output]) -> None:
        if sequence.decision is not None:  # an earlier attempt had come to its end and could not say so
            self._end(sequence, sequence.decision, outputs)
            return
        counters = sequence.counters
        if chunk.start == 0:
            counters.began_s = self._clock()
            self._caches[sequence.sequence_id] = self._runner.new_cache()
        cache = self._caches[sequence.sequence_id]
        logits = self._runner.prefill(cache, sequence.cached_ids[chunk.start : chunk.stop])
        num_prompt = len(sequence.request.prompt_token_ids)
        counters.num_prefill += 1
        counters.num_prompt_computed += min(chunk.stop, num_prompt) - min(chunk.start, num_prompt)
        if not chunk.is_last:
            return
        counters.prefill_ms = counters.elapsed_ms(self._clock())
        prefilled = Prefilled(
            num_prompt_tokens=num_prompt,
            num_computed=chunk.stop,
            num_passes=counters.num_prefill,
            prefill_ms=counters.prefill_ms,
            kv_bytes=cache.num_bytes,
        )
        outputs.append(Output(sequence.sequence_id, prefilled))
        sequence.check()
        if sequence.decision is None:
            self._pick(sequence, logits)
        self._settle(sequence, outputs)

    def _decode(self, sequence: Sequence, outputs: list[Output]) -> None:
        logits = self._runner.decode(self._caches[sequence.sequence_id], sequence.output_ids[-1])
        sequence.counters.num_decode += 1
        self._pick(sequence, logits)
        self._settle(sequence, outputs)

    def _pick(self, sequence: Sequence, logits: torch.Tensor) -> None:
        """Pick the next token of a sequence from its raw `logits` (1, vocab)."""
        if unhealthy_rows(logits):
            raise NumericalError(
                f"the checkpoint gave NaN or nothing finite at output position {sequence.position}; "
                "the tokens before it are kept"
            )
        row = Row(
            settings=sequence.settings,
            prompt_ids=sequence.prompt_ids,
            output_ids=sequence.output_ids,
            banned_ids=sequence.banned_ids,
            end_token_ids=self._limits.end_token_ids,
        )
        processed = process(logits, [row])
        picks = pick(processed, [row], [sequence.position])
        (entry,) = write(processed, picks, [row])
        now_s = self._clock()
        sequence.counters.token_times_s.append(now_s)
        sequence.accept(entry.token_id, self._draft(sequence, entry, now_s))

    def _draft(self, sequence: Sequence, entry: LedgerEntry, now_s: float) -> TokenPicked:
        """The token's event but for its text, which the transcript knows."""
        vocabulary = self.checkpoint.vocabulary
        candidates = tuple(
            Candidate(
                token_id=c.token_id,
                piece=vocabulary.spelling(c.token_id),
                raw_logprob=c.raw_logprob,
                logprob=c.logprob,
                removed_by=c.removed_by,
                penalty=c.penalty,
                noise=c.noise,
                num_causes=c.causes.num,
                causes=c.causes.latest,
            )
            for c in entry.candidates
        )
        return TokenPicked(
            position=sequence.position,
            token_id=entry.token_id,
            piece="",
            token_bytes=vocabulary.token_bytes(entry.token_id),
            text="",
            visible=False,
            withheld=False,
            raw_logprob=entry.raw_logprob,
            logprob=entry.logprob,
            rank=entry.rank,
            rank_processed=entry.rank_processed,
            entropy=entry.entropy,
            entropy_processed=entry.entropy_processed,
            kept=entry.kept,
            removed_mass=entry.removed_mass,
            candidates=candidates,
            others=entry.others,
            elapsed_ms=sequence.counters.elapsed_ms(now_s),
        )

    def _settle(self, sequence: Sequence, outputs: list[Output]) -> None:
        """Send what may be shown, and end the sequence where its rules say so."""
        if sequence.decision is not None:
            self._end(sequence, sequence.decision, outputs)
            return
        outputs.extend(Output(sequence.sequence_id, token) for token in sequence.transcript.release())

    def _end(
        self, sequence: Sequence, decision: Decision, outputs: list[Output], *, message: str | None = None
    ) -> None:
        released, withheld, tail = sequence.transcript.close(decision.match)
        cache = self._caches.pop(sequence.sequence_id, None)
        self._scheduler.remove(sequence.sequence_id)
        del self._sequences[sequence.sequence_id]
        stop = decision.record(withheld=withheld, misses=sequence.transcript.misses(), message=message)
        ended = Ended(
            status=decision.reason.status,
            stop=stop,
            tail=tail,
            num_tokens=len(sequence.output_ids),
            passes=sequence.counters.passes(),
            kv_positions=cache.num_positions if cache else 0,
            kv_bytes=cache.num_bytes if cache else 0,
            timing=sequence.counters.timing(),
        )
        outputs.extend(Output(sequence.sequence_id, token) for token in released)
        outputs.append(Output(sequence.sequence_id, ended))

    def _check_prompt(self, request: Request) -> None:
        info = self.checkpoint.info
        num_tokens = len(request.prompt_token_ids)
        if not num_tokens:
            raise PromptError(f"the prompt is empty, and {info.name} has no token that begins a text; type something")
        room_needed = 1 if request.settings.max_tokens else 0  # a run of no tokens only reads its prompt
        if num_tokens + room_needed > info.context_length:
            raise PromptError(
                f"the prompt has {num_tokens:,} tokens and {info.name} has room for {info.context_length:,}, "
                "prompt and answer together; shorten the prompt"
            )
        for token_id in (*request.prompt_token_ids, *request.generated):
            if not 0 <= token_id < info.vocab_size:
                raise PromptError(
                    f"token id {token_id} is outside the vocabulary; ids go from 0 to {info.vocab_size - 1}"
                )
