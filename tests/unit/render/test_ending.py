"""The stop record in words."""

import pytest

from app.render.ending import ending, reason_words
from models.events import Ended, NearMiss, Passes, StopReason, StopRecord
from models.sampling import Settings


def ended(stop: StopRecord, num_tokens: int = 37) -> Ended:
    return Ended(stop.reason.status, stop, "", num_tokens, Passes(1, 36, 5), 41, 1000)


@pytest.mark.parametrize("reason", StopReason)
def test_every_reason_has_a_sentence_and_a_short_name(reason: StopReason) -> None:
    html = ending(ended(StopRecord(reason)), None)
    assert f'data-reason="{reason.value}"' in html
    assert "{" not in html
    assert reason_words(reason) != reason.value or reason is StopReason.MAX_TOKENS


def test_an_end_token_with_what_did_not_happen() -> None:
    stop = StopRecord(StopReason.EOS, token_id=2, misses=(NearMiss("\n\n", 1, 21), NearMiss("END", 0, None)))
    html = ending(ended(stop), Settings(max_tokens=128))
    assert "the checkpoint picked its end token (id 2) after 37 tokens." in html
    assert "got 1 of 2 characters at token 21" in html
    assert '<q class="dl-piece">\\n\\n</q>' in html
    assert "never began" in html
    assert "max_tokens 128 not reached" in html


def test_a_stop_string_with_its_span_and_what_it_took() -> None:
    stop = StopRecord(StopReason.STOP_STRING, matched="<END>", span=(4, 9), withheld=3, also=(StopReason.MAX_TOKENS,))
    html = ending(ended(stop, num_tokens=128), Settings(max_tokens=128))
    assert "&lt;END&gt;" in html
    assert "at characters 4 to 9" in html
    assert "3 tokens are not in the text" in html
    assert "also true at that step: max_tokens" in html
    assert "not reached" not in html


def test_an_error_tells_its_sentence_inertly() -> None:
    html = ending(ended(StopRecord(StopReason.ERROR_NUMERICAL, message="NaN in <logits>.")), None)
    assert "Failed after 37 tokens: NaN in &lt;logits&gt;." in html


def test_a_scored_text_is_whole() -> None:
    told = ended(StopRecord(StopReason.MAX_TOKENS), 2)
    assert "Scored: 2 tokens, the whole of the given text." in ending(told, None, is_scored=True)
    assert "unfinished" in ending(told, None)
