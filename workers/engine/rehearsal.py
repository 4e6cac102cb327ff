"""What a step does beside its pass, done once before anybody waits for it.

On a CPU its functions are compiled when they are first called and kept for later processes. That takes some 15 seconds
where nothing is kept yet; it belongs to the start of a worker and not to somebody's first token.
"""

from typing import Final

import torch

from models.sampling import Settings
from workers.engine.given import write_given
from workers.engine.ledger import write
from workers.engine.logits.pipeline import Row, process
from workers.engine.sampler import pick

_SETTINGS: Final = (
    Settings(seed=4),
    Settings(temperature=0.7, top_p=0.9, seed=5),  # takes away and changes no logit
    Settings(temperature=0.8, top_p=0.95, min_p=0.01, repetition_penalty=1.1, alternatives=5, seed=1),
    Settings(temperature=1.2, top_k=5, typical_p=0.9, presence_penalty=0.5, alternatives=5, seed=2),
    Settings(temperature=0.0, alternatives=5, seed=3),
)
_NUM_TOKENS: Final = 64  # as many as any stage wants to see, and few enough to cost nothing


@torch.inference_mode()
def rehearse(device: str) -> None:
    """Pick from a made-up distribution and read a given token in it, with one row of each settings and with all: arrays
    that no stage writes into have a layout of their own, for which functions are compiled anew."""
    rising = torch.linspace(-4, 4, _NUM_TOKENS, device=device)
    ids = list(range(_NUM_TOKENS))
    for settings in (*((one,) for one in _SETTINGS), _SETTINGS):
        rows = [Row(one, ids[:8], ids[:4]) for one in settings]
        logits = rising.repeat(len(rows), 1)
        positions = [4] * len(rows)
        processed = process(logits.clone(), rows)
        write(processed, pick(processed, rows, positions), rows)
        list(write_given(process(logits.clone(), rows), [3] * len(rows), rows, positions))


if __name__ == "__main__":
    rehearse("cpu")
