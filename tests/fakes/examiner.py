"""Answers to questions about scripted runs, made from their records alone."""

import asyncio
import math
from collections.abc import Callable

from models.errors import DecodeLabError
from models.events import TokenPicked
from models.examination import (
    Alternative,
    CacheCheck,
    ControlInfluence,
    Coverage,
    FirstDifference,
    Influence,
    Reach,
    WhatIf,
)
from models.sampling import NEUTRAL, Settings


class FakeExaminer:
    """The examiner behind the scripted parts; each answer takes `answer_s`."""

    def __init__(
        self, tokens_of: Callable[[str], tuple[TokenPicked, ...]], settings_of: Callable[[str], Settings]
    ) -> None:
        self._tokens_of = tokens_of
        self._settings_of = settings_of
        self.answer_s = 0.0
        self.failure: DecodeLabError | None = None
        self.num_open = 0
        self.num_asked = 0
        self.asked: list[Settings] = []  # of what-ifs

    async def influence(self, run_id: str) -> Influence:
        """Each active control acts on every third token and decides every ninth; min_p does nothing."""
        await self._ready()
        num_tokens = len(self._tokens_of(run_id))
        active = [name for name in self._settings_of(run_id).changed() if hasattr(NEUTRAL, name) and name in _CONTROLS]
        return Influence(
            num_tokens,
            tuple(
                ControlInfluence(name, 0, 0)
                if name == "min_p"
                else ControlInfluence(name, -(-num_tokens // 3), -(-num_tokens // 9))
                for name in active
            ),
        )

    async def what_if(self, run_id: str, settings: Settings) -> WhatIf:
        """Tokens below the asked min_p are impossible; a temperature above 1 makes the fresh run leave at token 4."""
        await self._ready()
        self.asked.append(settings)
        tokens = self._tokens_of(run_id)
        alternatives = tuple(
            Alternative(
                token.position,
                token.token_id,
                round(token.raw_logprob / settings.temperature, 6)
                if math.exp(token.raw_logprob) >= settings.min_p
                else None,
                token.token_id,
            )
            for token in tokens
        )
        if settings.temperature <= 1:
            return WhatIf(alternatives, None)
        rival = next(c for c in tokens[4].candidates if c.token_id != tokens[4].token_id)
        return WhatIf(alternatives, FirstDifference(4, tokens[4].token_id, rival.token_id, None))

    async def coverage(self, run_id: str) -> Coverage:
        """top_k at the rank, top_p at 1 - p, min_p at p."""
        await self._ready()
        return Coverage(
            tuple(
                Reach(t.position, t.token_id, t.rank, 1 - math.exp(t.raw_logprob), math.exp(t.raw_logprob))
                for t in self._tokens_of(run_id)
            )
        )

    async def check_cache(self, run_id: str) -> CacheCheck:
        """Rounding alone."""
        await self._ready()
        num_tokens = len(self._tokens_of(run_id))
        return CacheCheck(num_tokens, num_tokens, 3.8e-6, 2, ())

    async def _ready(self) -> None:
        self.num_asked += 1
        self.num_open += 1
        try:
            await asyncio.sleep(self.answer_s)
            if self.failure is not None:
                raise self.failure
        finally:
            self.num_open -= 1


_CONTROLS = ("temperature", "top_k", "top_p", "min_p", "typical_p", "repetition_penalty")
