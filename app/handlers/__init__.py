"""What the pages do, a page a file: plain functions and async generators over the parts of the program, without layout.

A handler answers with the values of the page's components, in the order that its docstring gives. Every check happens
here or behind: a page's event can be called by anyone who can reach the server.
"""

from app.handlers.compare import CompareHandlers
from app.handlers.examine import ExamineHandlers
from app.handlers.frame import FrameHandlers
from app.handlers.history import HistoryHandlers
from app.handlers.playground import PlaygroundHandlers
from app.handlers.score import ScoreHandlers
from app.handlers.status import StatusHandlers
from app.parts import Parts

__all__ = [
    "CompareHandlers",
    "ExamineHandlers",
    "FrameHandlers",
    "Handlers",
    "HistoryHandlers",
    "PlaygroundHandlers",
    "ScoreHandlers",
    "StatusHandlers",
]


class Handlers:
    """The events of all pages."""

    def __init__(self, parts: Parts) -> None:
        self.frame = FrameHandlers(parts)
        self.playground = PlaygroundHandlers(parts)
        self.compare = CompareHandlers(parts)
        self.history = HistoryHandlers(parts)
        self.status = StatusHandlers(parts)
        self.examine = ExamineHandlers(parts)
        self.score = ScoreHandlers(parts)
