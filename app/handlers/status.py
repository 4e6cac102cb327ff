"""The status page's event."""

from app.parts import Parts
from app.render.status import status_tables


class StatusHandlers:
    """The events of the status page."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def look(self) -> str:
        """The tables as they are now. Parts that are away are told of in them."""
        return status_tables(self._parts.overview.take())
