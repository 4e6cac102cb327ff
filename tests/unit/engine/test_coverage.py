"""Each limit is the control's own: at its value the token stays, one step beyond it goes."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from models.errors import SettingError
from models.examination import CurvePoint, Reach
from models.sampling import Settings
from tests.fakes import scripted
from tests.fakes.phrases import FOX, ids, saying
from workers.engine.checkpoint import Checkpoint
from workers.engine.coverage import coverage
from workers.engine.logits.pipeline import process
from workers.engine.replay import Replay
from workers.engine.scoring import score

PROMPT = "the quick brown fox"
BEFORE = st.fixed_dictionaries(
    {},
    optional={
        "temperature": st.sampled_from([0.3, 0.9, 1.0, 3.0]),
        "repetition_penalty": st.floats(0.5, 2.0),
        "frequency_penalty": st.floats(-2, 2),
        "logit_bias": st.dictionaries(st.integers(0, 400).map(str), st.floats(-10, 10), max_size=3),
        "banned": st.lists(st.integers(0, 400), max_size=3),
        "top_k": st.integers(0, 5),  # has no part in it, as the three others
    },
)
ALONE = {"top_k": 0, "top_p": 1.0, "min_p": 0.0, "typical_p": 1.0}


@settings(max_examples=20, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(case=BEFORE, given_ids=st.lists(st.integers(0, 400), min_size=1, max_size=12))
def test_a_limit_keeps_its_token_and_one_step_beyond_does_not(
    tiny: Checkpoint, case: dict[str, Any], given_ids: list[int]
) -> None:
    effective = Settings.parse({"seed": 1, **case})
    found = coverage(tiny, tiny.encode(PROMPT), given_ids, effective)
    check = _Judge(tiny, given_ids, effective)
    assert [reach.token_id for reach in found.reaches] == given_ids
    for reach in found.reaches:
        if reach.top_k is None or reach.top_p is None or reach.min_p is None:
            assert (reach.top_k, reach.top_p, reach.min_p) == (None, None, None)
            assert not check.keeps(reach, **ALONE)
            continue
        assert check.keeps(reach, top_k=reach.top_k)
        assert reach.top_k == 1 or not check.keeps(reach, top_k=reach.top_k - 1)
        if reach.top_p > 0:
            assert check.keeps(reach, top_p=reach.top_p)
            step = float(np.spacing(np.float32(1 - reach.top_p)))
            beyond = min(reach.top_p - step, float(np.nextafter(reach.top_p, 0)))
            assert beyond <= 0 or not check.keeps(reach, top_p=beyond)
        else:
            assert check.keeps(reach, top_p=1e-9)
        assert check.keeps(reach, min_p=reach.min_p)
        beyond = float(np.nextafter(np.float32(reach.min_p), np.float32(2)))
        assert beyond > 1 or not check.keeps(reach, min_p=beyond)


class _Judge:
    """Applies a control alone, through the stages themselves, to the raw logits of one position."""

    def __init__(self, checkpoint: Checkpoint, given_ids: list[int], effective: Settings) -> None:
        self._replay = Replay(checkpoint, checkpoint.encode(PROMPT), given_ids)
        with torch.inference_mode():
            self._logits = torch.cat([span.logits for span in self._replay.spans(len(given_ids))])
        self._settings = effective

    def keeps(self, reach: Reach, **control: float) -> bool:
        rows_at = self._replay.under(self._settings.with_changes(**{**ALONE, **control}))
        place = range(reach.position, reach.position + 1)
        processed = process(self._logits[reach.position][None], rows_at(place))
        return bool(processed.final.logits[0, reach.token_id] > -torch.inf)


def test_equals_by_hand() -> None:
    """Four tokens share all of the mass; of equals the lowest id is taken first, and top_k parts none of them."""
    four = [3, 5, 7, 9]

    def logits(row: torch.Tensor) -> torch.Tensor:
        return scripted.gives_nothing(row).index_fill(0, torch.tensor(four), 0.0)

    checkpoint = saying(FOX, at_0=logits)
    reaches = [
        coverage(checkpoint, checkpoint.encode("the"), [token_id], Settings(seed=1)).reaches[0] for token_id in four
    ]
    assert [reach.top_k for reach in reaches] == [1, 1, 1, 1]
    assert [reach.min_p for reach in reaches] == [1.0, 1.0, 1.0, 1.0]
    assert reaches[0].top_p == 0.0
    assert [reach.top_p for reach in reaches[1:]] == pytest.approx([0.25, 0.5, 0.75], abs=1e-6)


def test_a_curve_is_the_share_of_tokens_that_a_control_permits(tiny: Checkpoint) -> None:
    given_ids = [(11 * i) % 400 for i in range(30)]
    effective = Settings(seed=1, temperature=0.7, banned=(11,))
    prompt = tiny.encode(PROMPT)
    found = coverage(tiny, prompt, given_ids, effective)
    assert found.top_p_curve[-1].share == pytest.approx(29 / 30)  # one of them is banned
    assert [p.share for p in found.top_p_curve] == sorted(p.share for p in found.top_p_curve)
    assert [p.value for p in found.min_p_curve] == sorted((p.value for p in found.min_p_curve), reverse=True)
    curves = {"top_k": found.top_k_curve, "top_p": found.top_p_curve, "min_p": found.min_p_curve}
    for control, curve in curves.items():
        for point in curve[:: max(1, len(curve) // 3)]:
            value = max(1e-9, point.value) if control == "top_p" else point.value
            tokens = score(tiny, prompt, given_ids, effective.with_changes(**{control: value})).tokens
            share = sum(token.logprob is not None for token in tokens) / 30
            assert point.share == pytest.approx(share, abs=1 / 30)  # another pass, so the last bits may differ


def test_greedy_settings_have_none() -> None:
    checkpoint = saying(FOX)
    with pytest.raises(SettingError, match="temperature: at 0"):
        coverage(checkpoint, checkpoint.encode("the"), ids(FOX), Settings(seed=1, temperature=0.0))


def test_no_text_has_no_points() -> None:
    checkpoint = saying(FOX)
    found = coverage(checkpoint, checkpoint.encode("the"), [], Settings(seed=1))
    assert (found.reaches, found.top_k_curve, found.top_p_curve, found.min_p_curve) == ((), (), (), ())
    assert coverage(checkpoint, checkpoint.encode("the"), ids(" fox"), Settings(seed=1)).top_k_curve == (
        CurvePoint(1, 1.0),
    )
