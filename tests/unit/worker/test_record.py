"""The record of a run: folded once, in order, and split into what is saved and what is not."""

from dataclasses import replace

import pytest

from models.events import Event, Passes, Resumed, StopReason, StopRecord
from tests.fakes.events import beams, ended, history, prefilled, token
from workers.record import Claim, Lease, Record, Summary


def claim(*events: Event) -> Claim:
    return Claim(
        lease=Lease("r", 2, "w"),
        checkpoint="c",
        prompt="p",
        settings={},
        user="r",
        is_cancel_requested=False,
        queued_s=0,
        running_s=0,
        ttft_ms=42.0,
        milestones=tuple(e for e in events if e.type != "token"),
        tokens=tuple(e for e in events if e.type == "token"),
    )


def test_a_saved_run_is_read_back_in_the_order_of_its_numbers() -> None:
    record = Record.of_saved(claim(*history("r", 3)))
    assert record.next_seq == 5
    assert record.token_ids == [100, 101, 102]
    assert record.text == " t0 t1 t2"
    assert record.ttft_ms == 42.0
    assert record.num_unsaved == 0


@pytest.mark.parametrize("seq", [1, 3, 0])
def test_an_event_out_of_its_turn_is_refused(seq: int) -> None:
    record = Record("r")
    record.add_all(history("r", 0))
    with pytest.raises(ValueError, match="was due"):
        record.add(Event("r", 1, seq, token(0)))


def test_a_batch_has_what_is_new_and_milestones_only_when_one_is() -> None:
    record = Record("r")
    first, second, *tokens = history("r", 3)
    record.add_all([first, second, tokens[0]])
    batch = record.unsaved()
    assert batch.milestones == (first, second)
    assert (batch.tokens, batch.num_tokens) == ((tokens[0],), 1)
    record.mark_saved()
    record.add_all(tokens[1:])
    batch = record.unsaved()
    assert batch.milestones is None
    assert (batch.tokens, batch.num_tokens) == (tuple(tokens[1:]), 3)


def test_the_figures_are_those_of_all_tokens() -> None:
    """Worked by hand: log-probabilities -1/8, -2/8, -3/8; ranks 1, 2, 3; entropy 1.5 each."""
    record = Record.of_saved(claim(*history("r", 2)))
    record.add(Event("r", 2, 4, token(2)))
    summary = record.summary
    assert (summary.mean_logprob, summary.min_logprob, summary.max_rank, summary.mean_entropy) == (
        -0.25,
        -0.375,
        3,
        1.5,
    )


def test_a_run_without_tokens_has_no_figures() -> None:
    assert Record("r").summary == Summary(mean_logprob=None, min_logprob=None, max_rank=None, mean_entropy=None)


def test_the_tail_belongs_to_the_text() -> None:
    record = Record.of_saved(claim(*history("r", 1)))
    record.add(Event("r", 2, 3, ended(tail="\N{REPLACEMENT CHARACTER}")))
    assert record.text == " t0\N{REPLACEMENT CHARACTER}"


def test_an_ending_without_an_engine_counts_what_was_told() -> None:
    record = Record.of_saved(claim(*history("r", 4)))
    ending = record.ended_without_engine(StopRecord(StopReason.WORKER_LOST, message="lost"))
    assert (ending.status, ending.num_tokens, ending.tail) == ("failed", 4, "")


def test_an_ending_without_an_engine_keeps_what_was_computed() -> None:
    """Worked by hand: a prompt of 3 in one pass of 24 bytes, 4 tokens of which the last never was in the cache."""
    record = Record.of_saved(claim(*history("r", 4)))
    ending = record.ended_without_engine(StopRecord(StopReason.WORKER_LOST))
    assert ending.passes == Passes(prefill=1, decode=3, prompt_tokens_computed=3)
    assert (ending.kv_positions, ending.kv_bytes) == (6, 48)


def test_a_run_that_was_never_prefilled_has_computed_nothing() -> None:
    record = Record("r")
    record.add(history("r", 0)[0])
    ending = record.ended_without_engine(StopRecord(StopReason.CANCELLED))
    assert (ending.passes, ending.kv_positions, ending.kv_bytes) == (Passes(), 0, 0)


def test_the_passes_of_a_resumed_run_are_those_of_all_its_attempts() -> None:
    """Worked by hand: attempt 1 gives 4 tokens in 1 + 3 passes; 2 dies before a token; 3 gives 2 in 1 + 1 passes."""
    record = Record.of_saved(claim(*history("r", 4)))
    record.add(Event("r", 2, 6, Resumed(4)))
    record.add(Event("r", 3, 7, Resumed(4)))
    record.add_all([Event("r", 3, 8, token(4)), Event("r", 3, 9, token(5))])
    whole = record.of_whole_run(ended(passes=Passes(1, 1, 3), kv_positions=8, kv_bytes=64), attempt=3)
    assert whole.passes == Passes(prefill=2, decode=4, prompt_tokens_computed=6)
    assert (whole.kv_positions, whole.kv_bytes) == (8, 64)
    lost = record.ended_without_engine(StopRecord(StopReason.WORKER_LOST))
    assert (lost.passes, lost.kv_positions, lost.kv_bytes) == (whole.passes, 8, 64)


def test_the_engines_own_account_of_a_cache_that_forgets_stands() -> None:
    """A window or a state does not grow with the positions: 6 of them may be as many bytes as the 3 of the prompt."""
    record = Record.of_saved(claim(*history("r", 4)))
    whole = record.of_whole_run(ended(passes=Passes(1, 3, 3), kv_positions=6, kv_bytes=24), attempt=1)
    assert (whole.kv_positions, whole.kv_bytes) == (6, 24)


def test_the_passes_of_a_resumed_score_go_over_several_tokens_each() -> None:
    """By hand: attempt 1 gives 33 tokens in a prefill and 2 passes over 16; attempt 2 dies after its prefill's one."""
    record = Record.of_saved(replace(claim(*history("r", 33)), given_text="t"))
    record.add_all([Event("r", 2, 35, Resumed(33)), Event("r", 2, 36, token(33))])
    lost = record.ended_without_engine(StopRecord(StopReason.WORKER_LOST))
    assert lost.passes == Passes(prefill=(1 + 2) + 1, decode=0, prompt_tokens_computed=6)


@pytest.mark.parametrize("says_so", [True, False])
def test_a_checkpoint_that_prefills_whole_took_one_pass_at_each_attempt(says_so: bool) -> None:
    """By hand: a prompt of 600 in one pass, which tells it too; 4 tokens in 3 more; then 604 in one, 2 tokens in 1."""
    record = prefilled_whole(600, is_whole=says_so)
    record.add_all([Event("r", 2, 6, Resumed(4)), Event("r", 2, 7, token(4)), Event("r", 2, 8, token(5))])
    lost = record.ended_without_engine(StopRecord(StopReason.WORKER_LOST))
    assert lost.passes == Passes(prefill=1 + 1, decode=3 + 1, prompt_tokens_computed=1200)


def test_a_prompt_that_grew_past_a_chunk_is_one_pass_where_the_checkpoint_says_so() -> None:
    record = prefilled_whole(510, is_whole=True)
    record.add_all([Event("r", 2, 6, Resumed(4)), Event("r", 2, 7, token(4))])
    assert record.ended_without_engine(StopRecord(StopReason.WORKER_LOST)).passes.prefill == 2


def test_a_checkpoint_that_prefills_whole_scores_by_single_positions() -> None:
    record = prefilled_whole(3, is_whole=True)
    record.is_score = True
    lost = record.ended_without_engine(StopRecord(StopReason.WORKER_LOST))
    assert lost.passes == Passes(prefill=1 + 3, decode=0, prompt_tokens_computed=3)


def prefilled_whole(num_prompt: int, *, is_whole: bool) -> Record:
    """An attempt that gave 4 tokens."""
    first, _, *tokens = history("r", 4)
    told = prefilled(num_prompt_tokens=num_prompt, num_computed=num_prompt, is_whole=is_whole)
    return Record.of_saved(claim(first, Event("r", 1, 1, told), *tokens))


class TestBeams:
    """A search tells its tokens when it is over, then its lineage. The prompt is 600 tokens, 2 passes."""

    def test_one_that_was_lost_before_its_end_told_of_its_prefill_alone(self) -> None:
        assert self.passes(self.searched(0)) == Passes(2, 0, 600)

    def test_a_lineage_has_all_steps(self) -> None:
        """By hand: 9 steps for 4 tokens, the first of them after the prefill."""
        record = self.searched(4)
        record.add(Event("r", 1, 6, beams(num_steps=9)))
        assert self.passes(record) == Passes(2, 8, 600)

    def test_a_later_attempt_begins_with_the_prompt(self) -> None:
        """By hand: attempt 1 told 4 of 6 tokens, so it was over, and took what attempt 2 took."""
        record = self.searched(4)
        record.add_all([Event("r", 2, 6, Resumed(4)), Event("r", 2, 7, token(4)), Event("r", 2, 8, token(5))])
        assert self.passes(record) == Passes(2 + 2, 3 + 5, 1200)  # at least
        record.add(Event("r", 2, 9, beams(num_steps=9)))
        assert self.passes(record) == Passes(2 + 2, 8 + 8, 1200)
        whole = record.of_whole_run(ended(passes=Passes(2, 8, 600)), attempt=2)
        assert whole.passes == Passes(2 + 2, 8 + 8, 1200)

    @staticmethod
    def searched(num_tokens: int) -> Record:
        first, _, *tokens = history("r", num_tokens)
        told = Event("r", 1, 1, prefilled(num_prompt_tokens=600, num_computed=600, num_passes=2))
        return Record.of_saved(replace(claim(first, told, *tokens), settings={"num_beams": 3}))

    @staticmethod
    def passes(record: Record) -> Passes:
        return record.ended_without_engine(StopRecord(StopReason.WORKER_LOST)).passes


def test_an_engine_that_had_no_cache_any_more_does_not_undo_what_was_told() -> None:
    record = Record.of_saved(claim(*history("r", 4)))
    whole = record.of_whole_run(ended(passes=Passes(), kv_positions=0, kv_bytes=0), attempt=2)
    assert (whole.kv_positions, whole.kv_bytes) == (6, 48)
