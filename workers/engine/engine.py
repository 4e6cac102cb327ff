"""The engine: sequences go in, steps are taken, outputs come out.

A step gives every running sequence one forward pass: a chunk of the prompt for one that begins, one position for the
others, all of them in one pass where the checkpoint can. After the pass each sequence's raw logits become the
processed distribution, the distribution and the noise of the position become a pick, and the stop rules are applied.
Where a text is scored its tokens take the place of picks, and a step goes over several of them. A beam search goes over
all its beams at once, and its tokens are those of the best beam when it ends. Each sequence stands alone: one that
fails ends with its own error, in the same step, and disturbs no other.

The engine belongs to one thread. It never waits: with nothing to do a step returns an empty list.
"""

import functools
import logging
import time
from collections.abc import Callable
from collections.abc import Sequence as Many
from dataclasses import dataclass

import torch

from models.beams import BeamsTraced
from models.errors import RunError
from models.events import Ended, Prefilled, Status, StopReason, TokenPicked
from workers.engine.admission import admit
from workers.engine.checkpoint import Checkpoint
from workers.engine.failures import reason_for
from workers.engine.judge import Asked, Guard, Judge, row_of
from workers.engine.memory import Memory
from workers.engine.runner import Runner, is_device_fault, is_out_of_memory
from workers.engine.scheduler import Chunk, Scheduler
from workers.engine.search import BeamSearch, rules_for
from workers.engine.sequence import Request, Sequence
from workers.engine.stopping import Decision, interruption
from workers.engine.turns import Turn, decoding, prefilling, searching

__all__ = ["Engine", "Output", "Request"]

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Output:
    """One payload for the history of one sequence. The last of a sequence is its `Ended`."""

    sequence_id: str
    payload: Prefilled | TokenPicked | BeamsTraced | Ended


class Engine:
    """Runs sequences over one checkpoint, at most `num_rows` at a time: first come, first served, but of those who wait
    the user with the fewest rows is next."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        *,
        num_rows: int = 1,
        kv_budget_bytes: int | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """`kv_budget_bytes`: for the keys and values of all sequences together; None: no bound. `clock` gives seconds
        and never goes back."""
        self.checkpoint = checkpoint
        self._clock = clock
        self._runner = Runner(checkpoint)
        info = checkpoint.info
        self._scheduler = Scheduler(
            num_rows, prefills_whole=info.prefills_whole, attention_share=self._runner.attention_share
        )
        self._memory = Memory(self._runner.new_cache, info.kv_bytes, max_bytes=kv_budget_bytes)
        self._judge = Judge(checkpoint.vocabulary, clock)
        self._sequences: dict[str, Sequence] = {}
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
        self._scheduler.add(request.sequence_id, len(sequence.cached_ids), user=request.user)

    def _new_search(self, sequence: Sequence) -> BeamSearch:
        limits = sequence.limits
        room = limits.context_length - len(sequence.prompt_ids)
        rules = rules_for(sequence.settings, end_token_ids=limits.end_token_ids, room=room)
        return BeamSearch(rules, row_of(sequence, 0), matcher=sequence.first_matcher)

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
        guard = functools.partial(self._guarded, outputs)
        turns = self._turns(outputs, guard)
        if not turns:
            return outputs
        asked: list[Asked] = []
        for turn, answer in zip(turns, self._runner.run([turn.work for turn in turns]), strict=True):
            guard(turn.sequence, functools.partial(self._take_answer, turn, answer, asked, outputs))
        self._judge.give_tokens(asked, guard)
        for turn in turns:
            if turn.chunk is None or turn.chunk.is_last:
                guard(turn.sequence, functools.partial(self._settle, turn.sequence, outputs))
        return outputs

    def _turns(self, outputs: list[Output], guard: Guard) -> list[Turn]:
        """What each sequence computes in this step."""
        plan = self._scheduler.plan(lambda sequence_id: self._memory.begin(self._sequences[sequence_id]))
        turns: list[Turn] = []
        for sequence_id in plan.decode:
            sequence = self._sequences[sequence_id]
            guard(sequence, functools.partial(self._go_on, sequence, turns))
        for chunk in plan.prefill:
            sequence = self._sequences[chunk.sequence_id]
            if sequence.decision is not None and not sequence.is_searched:
                self._end(sequence, sequence.decision, outputs)  # an earlier attempt had ended and could not say so
                continue
            sequence.counters.begin(self._clock())
            turns.append(prefilling(sequence, self._memory.cache(chunk.sequence_id), chunk))
        return self._fitting(turns)

    def _fitting(self, turns: Many[Turn]) -> list[Turn]:
        """The turns that the memory has room for; the other sequences wait for it."""
        losers = self._memory.make_room({turn.sequence.sequence_id: turn.work.num_positions for turn in turns})
        for sequence_id in losers:
            self._scheduler.put_back(sequence_id, len(self._sequences[sequence_id].cached_ids))
        return [turn for turn in turns if turn.sequence.sequence_id not in losers]

    def evict(self, sequence_id: str) -> None:
        """Take a running sequence's row and cache away. It waits, before all others, and computes its positions anew;
        its tokens are what they would have been. A beam search, and one that has no row, are left as they are."""
        if sequence_id in self._memory and sequence_id not in self._searches:
            self._memory.drop(sequence_id)
            self._scheduler.put_back(sequence_id, len(self._sequences[sequence_id].cached_ids))

    def _go_on(self, sequence: Sequence, turns: list[Turn]) -> None:
        """Add the turn of a sequence that has been prefilled."""
        cache, search = self._memory.cache(sequence.sequence_id), self._searches.get(sequence.sequence_id)
        if search is not None:
            turns.append(searching(sequence, cache, search))
        else:
            turns.append(decoding(sequence, cache, by_one=self.checkpoint.info.prefills_whole))

    def _guarded(self, outputs: list[Output], sequence: Sequence, advance: Callable[[], None]) -> None:
        """Advance one sequence; what goes wrong ends that one alone, but for a fault of the device itself."""
        if sequence.sequence_id not in self._sequences:
            return  # it has ended in this step
        try:
            advance()
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

    def _take_answer(
        self, turn: Turn, answer: torch.Tensor | RunError, asked: list[Asked], outputs: list[Output]
    ) -> None:
        """Count a pass, and let the sequence have its logits."""
        if isinstance(answer, RunError):
            raise answer
        sequence, counters = turn.sequence, turn.sequence.counters
        if turn.chunk is not None:
            self._count(turn.chunk, sequence, outputs)
            if not turn.chunk.is_last:
                return
        elif sequence.given_ids is None:
            counters.num_decode += 1
        else:
            counters.num_prefill += 1
        search = self._searches.get(sequence.sequence_id)
        if search is not None:
            self._search(sequence, search, answer)
            return
        if turn.chunk is not None:
            sequence.check()
        if sequence.decision is None:
            asked.append((sequence, answer))

    def _search(self, sequence: Sequence, search: BeamSearch, logits: torch.Tensor) -> None:
        if not self._judge.search(sequence, search, logits):
            del self._searches[sequence.sequence_id]
            raise RunError(
                "the search found another text than the one that was already shown, as numbers differ between "
                "machines; start the run again"
            )

    def _count(self, chunk: Chunk, sequence: Sequence, outputs: list[Output]) -> None:
        """Count a prefill pass, and tell of the prefill once it is done for the first time."""
        counters = sequence.counters
        num_prompt = len(sequence.request.prompt_token_ids)
        counters.num_prefill += 1
        counters.num_computed += chunk.stop - chunk.start
        counters.num_prompt_computed += min(chunk.stop, num_prompt) - min(chunk.start, num_prompt)
        if not chunk.is_last or counters.prefill_ms is not None:
            return
        counters.prefill_ms = counters.elapsed_ms(self._clock())
        prefilled = Prefilled(
            num_prompt_tokens=num_prompt,
            num_computed=counters.num_computed,
            num_passes=counters.num_prefill,
            prefill_ms=counters.prefill_ms,
            kv_bytes=self._memory.cache(sequence.sequence_id).num_bytes,
            is_whole=self.checkpoint.info.prefills_whole,
        )
        outputs.append(Output(sequence.sequence_id, prefilled))

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
        if search is not None and not search.is_over and not self._judge.read_best(sequence, search):
            search = None  # it has nothing that follows on what was shown
        released, withheld, tail = sequence.transcript.close(decision.match)
        cache = self._memory.release(sequence.sequence_id, may_share=decision.reason.status is not Status.FAILED)
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
