"""The benchmark of many runs counts what it times."""

from pathlib import Path

import pytest

from benchmarks.continuous import Wanted, by_engine
from benchmarks.machine import Amounts, Bench
from models.errors import DecodeLabError
from tests.fakes import checkpoints


def test_a_run_that_ends_short_of_its_tokens_is_not_timed(tmp_path: Path) -> None:
    checkpoint = checkpoints.load(checkpoints.write_llama(tmp_path / "tiny"))
    bench = Bench(checkpoint, (), tmp_path, Amounts(threads=1))
    whole = Wanted((5, 6, 7), 8)
    by_engine(bench, [whole])
    longer_than_the_context = Wanted((5, 6, 7), checkpoint.info.context_length)
    with pytest.raises(DecodeLabError, match="run 1: 125 of 128 tokens"):
        by_engine(bench, [whole, longer_than_the_context])
