"""The engine: sequences go in, steps are taken, outputs come out.

A step gives every running sequence one forward pass: a chunk of the prompt for one that begins, one position for the
others. After its pass a sequence's raw logits become the processed distribution, the distribution and the noise of the
position become a pick, and the stop rules are applied. Where a text is scored its tokens take the place of picks, and a
pass goes over several of them. A beam search passes over all its beams at once, and its tokens are those of the best
beam when it ends. Each sequence stands alone: one that fails ends with its own error, in the same step, and disturbs no
other.

The engine belongs to one thread. It never waits: with nothing to do a step returns an empty list.
"""

import functools
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from models.beams import BeamsTraced
from models.errors import ConstraintError, NumericalError, RunError
from models.events import Ended, Prefilled, StopReason, TokenPicked
from workers.engine.admission import admit
from workers.engine.cache import SequenceCache
from workers.engine.checkpoint import Checkpoint
from workers.engine.drafts import draft
from workers.engine.failures import reason_for
from workers.engine.given import write_given
from workers.engine.ledger import LedgerEntry, write
from workers.engine.logits.pipeline import Row, process, unhealthy_rows
from workers.engine.runner import Runner, is_device_fault, is_out_of_memory
from workers.engine.sampler import pick
from workers.engine.scheduler import SCORE_POSITIONS, Chunk, Scheduler
from workers.engine.search import BeamSearch, rules_for
from workers.engine.sequence import Request, Sequence
from workers.engine.stopping import Decision, interruption

__all__ = ["Engine", "Output", "Request"]

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Output:
    """One payload for the history of one sequence. The last of a sequence is its `Ended`."""

    sequence_id: str
    payload: Prefilled | TokenPicked | BeamsTraced | Ended


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
        self._searches: dict[str, BeamSearch] = {}

    @property
    def has_work(self) -> bool:
        return bool(self._sequences)

    @property
    def num_active(self) -> int:
        """Sequences that were added and have not ended, waiting ones included."""
        return len(self._sequences)

    def add(self, request: Request) -> None:
        """Let a sequence wait for a row. Nothing of others changes, whatever is wrong with this one.

        Raises what `admit` refuses with, and ValueError for an id that is in use.
        """
        if request.sequence_id in self._sequences:
            raise ValueError(f"sequence {request.sequence_id} is already running")
        sequence = admit(self.checkpoint, request)
        if sequence.is_searched:
            self._searches[request.sequence_id] = self._new_search(sequence)
        self._sequences[request.sequence_id] = sequence
        self._scheduler.add(request.sequence_id, len(sequence.cached_ids))

    def _new_search(self, sequence: Sequence) -> BeamSearch:
        limits = sequence.limits
        room = limits.context_length - len(sequence.prompt_ids)
        rules = rules_for(sequence.settings, end_token_ids=limits.end_token_ids, room=room)
        return BeamSearch(rules, self._row(sequence, 0), matcher=sequence.first_matcher)

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
                reason = StopReason.ERROR_OUT_OF_MEMORY
                message = "the device has no memory for this step; use fewer tokens"
        else:
            return
        self._end(sequence, interruption({reason}), outputs, message=message)

    def _prefill(self, chunk: Chunk, sequence: Sequence, outputs: list[Output]) -> None:
        search = self._searches.get(sequence.sequence_id)
        if sequence.decision is not None and search is None:  # an earlier attempt had ended and could not say so
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
            is_whole=self.checkpoint.info.prefills_whole,
        )
        outputs.append(Output(sequence.sequence_id, prefilled))
        if search is not None:
            self._search(sequence, search, logits)
        else:
            sequence.check()
            if sequence.decision is None:
                self._judge(sequence, logits)
        self._settle(sequence, outputs)

    def _decode(self, sequence: Sequence, outputs: list[Output]) -> None:
        cache, search = self._caches[sequence.sequence_id], self._searches.get(sequence.sequence_id)
        if search is not None:
            cache.select_rows(search.parents)
            logits = self._runner.decode_rows(cache, search.last_ids)
            sequence.counters.num_decode += 1
            self._search(sequence, search, logits)
        elif sequence.given_ids is None:
            logits = self._runner.decode(cache, sequence.output_ids[-1])
            sequence.counters.num_decode += 1
            self._judge(sequence, logits)
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
        try:
            if num_healthy:
                self._take(sequence, logits[:num_healthy])
        except ConstraintError:
            if num_healthy == 1:
                raise
            for index in range(num_healthy):  # those before the one that is to blame are kept
                self._take(sequence, logits[index : index + 1])
        if unhealthy:
            raise NumericalError(
                f"the checkpoint gave NaN or nothing finite at output position {sequence.position}; "
                "the tokens before it are kept"
            )

    def _take(self, sequence: Sequence, logits: torch.Tensor) -> None:
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
        for entry in entries:
            self._accept(sequence, entry, now_s)

    def _search(self, sequence: Sequence, search: BeamSearch, logits: torch.Tensor) -> None:
        """Take the next step of a beam search from the raw `logits` (beams, vocab); at its end, the winner's tokens."""
        search.advance(logits, self._clock())
        if search.is_over and not self._read_best(sequence, search):
            del self._searches[sequence.sequence_id]
            raise RunError(
                "the search found another text than the one that was already shown, as numbers differ between "
                "machines; start the run again"
            )

    def _read_best(self, sequence: Sequence, search: BeamSearch) -> bool:
        """Take the tokens of the best beam as if they were picked one after the other.

        Those that an earlier attempt has shown are only compared; False, and nothing is taken, where they differ.
        """
        best, shown = search.best, sequence.output_ids
        if best is None or list(best.token_ids[: len(shown)]) != shown:
            return False
        for choice in best.choices[len(shown) :]:
            # Only the end of the search makes the last one known.
            is_last = sequence.position + 1 == len(best.choices)
            self._accept(sequence, choice.entry, search.stepped_s if is_last else choice.at_s)
        return True

    def _row(self, sequence: Sequence, position: int) -> Row:
        given = sequence.given_ids
        return Row(
            settings=sequence.settings,
            prompt_ids=sequence.prompt_ids,
            output_ids=sequence.output_ids if given is None else given[:position],
            banned_ids=sequence.banned_ids,
            end_token_ids=sequence.limits.end_token_ids,
            allowed=sequence.allowed_at(position),
        )

    def _accept(self, sequence: Sequence, entry: LedgerEntry, at_s: float) -> None:
        """Append the token of `entry`, picked or given at `at_s`, and apply the stop rules."""
        counters = sequence.counters
        counters.token_times_s.append(at_s)
        elapsed_ms = counters.elapsed_ms(at_s)
        token = draft(entry, self.checkpoint.vocabulary, position=sequence.position, elapsed_ms=elapsed_ms)
        sequence.accept(entry.token_id, token)

    def _settle(self, sequence: Sequence, outputs: list[Output]) -> None:
        """Send what may be shown, and end the sequence where its rules say so. Not while a search goes on."""
        search = self._searches.get(sequence.sequence_id)
        if search is not None and not search.is_over:
            return
        if sequence.decision is not None:
            self._end(sequence, sequence.decision, outputs)
            return
        outputs.extend(Output(sequence.sequence_id, token) for token in sequence.transcript.release())

    def _end(
        self, sequence: Sequence, decision: Decision, outputs: list[Output], *, message: str | None = None
    ) -> None:
        search = self._searches.pop(sequence.sequence_id, None)
        if search is not None and not search.is_over and not self._read_best(sequence, search):
            search = None  # it has nothing that follows on what was shown
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
            kv_positions=cache.num_held if cache else 0,
            kv_bytes=cache.num_bytes if cache else 0,
            timing=sequence.counters.timing(),
        )
        outputs.extend(Output(sequence.sequence_id, token) for token in released)
        if search is not None and (lineage := search.traced()) is not None:
            outputs.append(Output(sequence.sequence_id, lineage))
        outputs.append(Output(sequence.sequence_id, ended))
