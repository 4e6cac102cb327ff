"""The engine: sequences go in, steps are taken, outputs come out.

A step gives every running sequence one forward pass: a chunk of the prompt for one that begins, one position for the
others. After its pass a sequence's raw logits become the processed distribution, the distribution and the noise of the
position become a pick, and the stop rules are applied. Where a text is scored its tokens take the place of picks, and a
pass goes over several of them. Each sequence stands alone: one that fails ends with its own error, in the same step,
and disturbs no other.

The engine belongs to one thread. It never waits: with nothing to do a step returns an empty list.
"""

import functools
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from models.errors import NumericalError, RunError
from models.events import Ended, Prefilled, StopReason, TokenPicked
from workers.engine.admission import admit
from workers.engine.cache import SequenceCache
from workers.engine.checkpoint import Checkpoint
from workers.engine.drafts import draft
from workers.engine.failures import reason_for
from workers.engine.given import write_given
from workers.engine.ledger import write
from workers.engine.logits.pipeline import Row, process, unhealthy_rows
from workers.engine.runner import Runner, is_device_fault, is_out_of_memory
from workers.engine.sampler import pick
from workers.engine.scheduler import SCORE_POSITIONS, Chunk, Scheduler
from workers.engine.sequence import Request, Sequence
from workers.engine.stopping import Decision, interruption

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

    @property
    def has_work(self) -> bool:
        return bool(self._sequences)

    @property
    def num_active(self) -> int:
        """Sequences that were added and have not ended, waiting ones included."""
        return len(self._sequences)

    def add(self, request: Request) -> None:
        """Let a sequence wait for a row. Nothing of others changes, whatever is wrong with this one.

        Raises what `admit` refuses with, PromptError and SettingError, and ValueError for an id that is in use.
        """
        if request.sequence_id in self._sequences:
            raise ValueError(f"sequence {request.sequence_id} is already running")
        sequence = admit(self.checkpoint, request)
        self._sequences[request.sequence_id] = sequence
        self._scheduler.add(request.sequence_id, len(sequence.cached_ids))

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
            self._judge(sequence, logits)
        self._settle(sequence, outputs)

    def _decode(self, sequence: Sequence, outputs: list[Output]) -> None:
        cache = self._caches[sequence.sequence_id]
        if sequence.given_ids is None:
            logits = self._runner.decode(cache, sequence.output_ids[-1])
            sequence.counters.num_decode += 1
        else:  # the next given tokens but the last, after which nothing is asked
            start = sequence.position - 1
            num_positions = 1 if self.checkpoint.info.prefills_whole else SCORE_POSITIONS
            logits = self._runner.extend(cache, sequence.given_ids[start:-1][:num_positions].tolist())
            sequence.counters.num_prefill += 1
        self._judge(sequence, logits)
        self._settle(sequence, outputs)

    def _judge(self, sequence: Sequence, logits: torch.Tensor) -> None:
        """Pick the next token of a sequence from its raw `logits` (1, vocab), or give the account of the next given
        ones from theirs (positions, vocab). The tokens before a row that nothing can be made of are kept."""
        unhealthy = unhealthy_rows(logits)
        num_healthy = unhealthy[0] if unhealthy else len(logits)
        if num_healthy:
            self._accept(sequence, logits[:num_healthy])
        if unhealthy:
            raise NumericalError(
                f"the checkpoint gave NaN or nothing finite at output position {sequence.position}; "
                "the tokens before it are kept"
            )

    def _accept(self, sequence: Sequence, logits: torch.Tensor) -> None:
        """Take one token for each row of healthy raw `logits`."""
        positions = range(sequence.position, sequence.position + len(logits))
        rows = [self._row(sequence, position) for position in positions]
        processed = process(logits, rows)
        if sequence.given_ids is None:
            entries = iter(write(processed, pick(processed, rows, positions), rows))
        else:
            given = sequence.given_ids[positions.start : positions.stop].tolist()
            entries = write_given(processed, given, rows, positions)
        now_s = self._clock()
        elapsed_ms = sequence.counters.elapsed_ms(now_s)
        for position, entry in zip(positions, entries, strict=True):
            sequence.counters.token_times_s.append(now_s)
            token = draft(entry, self.checkpoint.vocabulary, position=position, elapsed_ms=elapsed_ms)
            sequence.accept(entry.token_id, token)

    def _row(self, sequence: Sequence, position: int) -> Row:
        given = sequence.given_ids
        return Row(
            settings=sequence.settings,
            prompt_ids=sequence.prompt_ids,
            output_ids=sequence.output_ids if given is None else given[:position],
            banned_ids=sequence.banned_ids,
            end_token_ids=sequence.limits.end_token_ids,
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
