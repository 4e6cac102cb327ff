"""What is shown while a text grows, against the plainest reckoning: whole text, whole search, whole tokens."""

from hypothesis import example, given, settings
from hypothesis import strategies as st

from models.sampling import Settings
from tests.fakes import decoders
from tests.fakes.events import token
from tests.unit.engine_numbers.test_stopping import obvious_match, obvious_safe
from workers.engine.transcript import Transcript
from workers.engine.vocabulary import Vocabulary

BYTES = decoders.tokenizer("byte_level")
TEXTS = Vocabulary.from_tokenizer(BYTES)
# Characters of one and of several tokens; a stop string may begin, end or consist of the latter.
LETTERS = st.text("abé😀", max_size=12)
STOPS = st.lists(st.text("abé😀", min_size=1, max_size=4), min_size=1, max_size=3)


def ids(text: str) -> list[int]:
    return list(BYTES(text).input_ids)


@settings(max_examples=200, deadline=None)
@example(text="aé😀b", stops=["😀b"], include_stop=False)
@given(text=LETTERS, stops=STOPS, include_stop=st.booleans())
def test_what_is_shown_is_final_and_nothing_final_waits(text: str, stops: list[str], include_stop: bool) -> None:
    transcript = Transcript(TEXTS, Settings(stop=tuple(stops), include_stop=include_stop), ())
    shown, num_shown, so_far, cut, match, number = "", 0, "", None, None, 0
    for number, token_id in enumerate(ids(text), start=1):
        so_far = TEXTS.decode(ids(text)[:number]).rstrip("\ufffd")
        match = transcript.read(token_id, token(number))
        if expected := obvious_match(so_far, stops):
            cut = expected[0] + len(expected[1]) * include_stop
            break
        released = transcript.release()
        shown, num_shown = shown + "".join(t.text for t in released), num_shown + len(released)
        assert shown == so_far[: obvious_safe(so_far, stops)]
    rest, withheld, tail = transcript.close(match)
    assert (match is None) == (cut is None)
    assert shown + "".join(t.text for t in rest) + tail == so_far[:cut]
    assert withheld == sum(t.withheld for t in rest)
    assert withheld == (0 if match is None else number - len(so_far[:cut].encode()))  # a token is a byte
    assert num_shown + len(rest) == number
