"""A small beam search drawn: the winner's path by hand, every beam there, every text inert."""

from app.render.lineage import lineage
from models.beams import BeamStep, BeamsTraced, PrunedBeam, TracedBeam

# Two beams. Step 0: a, b. Step 1: both come from b; the second of them wins at step 2 by ending.
STEPS = (
    BeamStep((TracedBeam(0, 1, -0.5, -0.5), TracedBeam(0, 2, -0.7, -0.7)), (), (PrunedBeam(0, 9, 0.3),)),
    BeamStep((TracedBeam(1, 3, -1.0, -0.5), TracedBeam(1, 4, -1.2, -0.6)), (), (PrunedBeam(0, 8, 0.1),)),
    BeamStep((TracedBeam(0, 5, -2.4, -0.8),), (TracedBeam(1, 6, -1.5, -0.5),), ()),
)
TRACED = BeamsTraced(num_beams=2, sequence_score=-0.5, beam_indices=(0, 1, 1), num_steps=3, steps=STEPS)


def test_the_winners_path_is_marked_from_its_first_token_to_its_last() -> None:
    html = lineage(TRACED, {1: " a", 2: "<b>", 6: "."})
    won = [part.split("</title>")[0].split("<title>")[1] for part in html.split('class="dl-won">')[1:]]
    assert won == [
        "step 0, &#x27;&lt;b&gt;&#x27;: log-probability -0.7000, score -0.7000",
        "step 1, &#x27;#4&#x27;: log-probability -1.2000, score -0.6000",
        "step 2, &#x27;.&#x27;: log-probability -1.5000, score -0.5000, ended here",
    ]
    assert html.count("<circle") == 5
    assert html.count("<rect") == 1
    assert html.count("<path") == 4  # the first step continues nothing
    assert "<b>" not in html


def test_the_closest_losers_come_first() -> None:
    html = lineage(TRACED, {8: "x"})
    assert html.index("lost by 0.1000") < html.index("lost by 0.3000")
    assert lineage(None, {}) == ""
