"""What the history's table asks for: each call has the page's own parameters, and its answer is plain JSON.

`html` in an answer is made and escaped by `render`; `error` is a sentence, with `is_away` where asking again may help.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from app.history_address import active, asked_of
from app.parts import Parts
from app.render.history import chips, history_rows, history_table
from app.render.text import count
from models.errors import DecodeLabError, RefusedError, UnavailableError

PAGE: Final = 50
Answer = dict[str, Any]


class HistoryHandlers:
    """The events of the history."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def functions(self, *names: str) -> list[Callable[[Any], Answer]]:
        """What a page's script may call, by name, with one object; all of it, or what is named."""
        answers = {
            "list_runs": self.list_runs,
            "list_arms": self.list_arms,
            "star": self.star,
            "tag": self.tag,
            "describe": self.describe,
            "discard": self.discard,
            "restore": self.restore,
        }
        return [_guarded(name, answer) for name, answer in answers.items() if not names or name in names]

    def list_runs(self, ask: Mapping[str, Any]) -> Answer:
        """A page of runs under the address's parameters; the first one, or that after `before`."""
        asked = asked_of(ask.get("parameters") or {})
        before = str(ask.get("before") or "") or None
        if before is None:
            self._parts.history.purge()
        page = self._parts.history.page(
            asked.filters, sort=asked.sort, before=before, limit=PAGE, is_grouped=asked.is_grouped
        )
        if asked.filters.is_starred:  # a comparison that has no star is here for a run that has one
            page = replace(page, comparisons={i: c for i, c in page.comparisons.items() if c.is_starred})
        named = active(asked.filters)
        is_filtered = bool(named or asked.filters.text)
        html = (
            history_rows(page, is_grouped=asked.is_grouped)
            if before
            else history_table(page, asked.sort, is_filtered=is_filtered, is_grouped=asked.is_grouped)
        )
        return {"html": html, "next": page.next, "chips": chips(named), "filters": named}

    def list_arms(self, ask: Mapping[str, Any]) -> Answer:
        """The runs of one comparison, to unfold under its line."""
        page = self._parts.history.arms(str(ask.get("comparison")))
        return {"html": history_rows(page, is_grouped=False, is_unfolded=True)}

    def star(self, ask: Mapping[str, Any]) -> Answer:
        """Star runs and comparisons, or take the star away; the lines of the runs as they are then."""
        runs, comparisons, is_starred = _texts(ask, "runs"), _texts(ask, "comparisons"), bool(ask.get("is_starred"))
        self._parts.history.star(runs, comparisons, is_starred=is_starred)
        return {**self._lines(runs), "comparisons": comparisons, "is_starred": is_starred}

    def tag(self, ask: Mapping[str, Any]) -> Answer:
        """Give runs a tag; their lines as they are then."""
        runs = _texts(ask, "runs")
        self._parts.history.add_tag(runs, str(ask.get("tag") or ""))
        return self._lines(runs)

    def describe(self, ask: Mapping[str, Any]) -> Answer:
        """Title, note (unless none is given) and, of a run, all tags; its line as it is then.

        A comparison's line is read again by the page; its title is in the answer as it was saved.
        """
        title, note = str(ask.get("title") or ""), None if ask.get("note") is None else str(ask["note"])
        if ask.get("comparison"):
            experiment_id = str(ask["comparison"])
            self._parts.history.describe(experiment_id, of="comparison", title=title, note=note)
            return {"title": self._parts.history.comparison(experiment_id).title or ""}
        run_id = str(ask.get("run"))
        tags = [tag for tag in str(ask.get("tags") or "").split(",") if tag.strip()]
        self._parts.history.describe(run_id, of="run", title=title, note=note, tags=tags)
        return self._lines([run_id])

    def discard(self, ask: Mapping[str, Any]) -> Answer:
        """Delete runs and whole comparisons; what can be taken back, and what was done in a sentence."""
        found = self._parts.history.discard(_texts(ask, "runs"), _texts(ask, "comparisons"))
        said = f"{count(len(found.run_ids), 'run')} deleted."
        if found.num_active:
            said += f" {count(found.num_active, 'run')} not ended yet and kept: stop first, then delete."
        return {"runs": found.run_ids, "comparisons": found.experiment_ids, "said": said}

    def restore(self, ask: Mapping[str, Any]) -> Answer:
        """Take a deletion back."""
        number = self._parts.history.restore(_texts(ask, "runs"), _texts(ask, "comparisons"))
        return {"said": f"{count(number, 'run')} restored."}

    def _lines(self, run_ids: Sequence[str]) -> Answer:
        """The lines of these runs by id, each to be put where its old one stands."""
        page = self._parts.history.lines(run_ids)
        return {"lines": {row.id: history_rows(_only(page, row), is_grouped=False) for row in page.rows}}


def _only(page: Any, row: Any) -> Any:
    return type(page)([row], None, page.comparisons)


def _texts(ask: Mapping[str, Any], name: str) -> list[str]:
    values = ask.get(name) or []
    if not isinstance(values, list):
        raise RefusedError(f"{name} must be a list of ids", field=name)
    return [str(value) for value in values]


def _guarded(name: str, answer: Callable[[Mapping[str, Any]], Answer]) -> Callable[[Any], Answer]:
    """A plain function of this name, which Gradio asks for; an error becomes a part of its answer."""

    def ask(asked: Any) -> Answer:
        try:
            return answer(asked if isinstance(asked, dict) else {})
        except DecodeLabError as exc:
            return {"error": exc.message, "is_away": isinstance(exc, UnavailableError)}

    ask.__name__ = name
    return ask
