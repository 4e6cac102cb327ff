"""What was saved, read back: pages of runs, one run whole, a comparison, and a run's events as they were sent."""

from collections.abc import Iterator, Sequence
from typing import Final

from sqlalchemy import select

from app.family import Relative, family
from app.ids import check_id, not_found
from app.record import ExperimentDetail, RunDetail, detail, saved_events
from app.run_changes import RunChanges
from app.run_filter import NEWEST_FIRST, Bounds, Place, RunFilter, Sort, SortKey, choose
from app.run_pages import Comparison, RunPage, RunSummary, comparisons, read_lines, read_page
from models.db.experiments import Experiment
from models.db.runs import Run

__all__ = [
    "Bounds", "Comparison", "ExperimentDetail", "History", "RunDetail", "RunFilter", "RunPage", "RunSummary", "Sort",
    "SortKey",
]  # fmt: skip

MAX_PAGE: Final = 500
_ORDER_OF_ARMS: Final = (Run.arm_index, Run.sample_index, Run.id)


class History(RunChanges):
    """Queries over the saved runs, and what a person changes in them. Every method raises DatabaseUnavailableError
    when there is no answer. A deleted run is not there."""

    def page(
        self,
        filters: RunFilter,
        *,
        sort: Sort = NEWEST_FIRST,
        before: str | None = None,
        limit: int = 50,
        is_grouped: bool = False,
    ) -> RunPage:
        """Up to `limit` runs that come after `before` (the `next` of the page before); no full texts are loaded.

        With `is_grouped` one run, the newest, stands for its whole comparison, whatever the filters say of the others;
        in a list of what is starred, only for a comparison that is starred itself.
        Raises NotFoundError where `before` is no place, RefusedError for a search without any word.
        """
        place = None if before is None else Place.parse(before)
        with self._database.read() as session:
            chosen = choose(session, filters, sort, is_grouped=is_grouped)
            return read_page(session, chosen, sort, before=place, limit=max(1, min(limit, MAX_PAGE)))

    def comparison(self, experiment_id: str) -> Comparison:
        """What a comparison is called, without its arms. Raises NotFoundError."""
        with self._database.read() as session:
            found = comparisons(session, [check_id(experiment_id, of="comparison")]).get(experiment_id)
        if found is None or not found.num_runs:
            raise not_found(experiment_id, of="comparison")
        return found

    def arms(self, experiment_id: str) -> RunPage:
        """The runs of a comparison, by arm and sample index; none where there is no such comparison."""
        where = (Run.experiment_id == check_id(experiment_id, of="comparison"), Run.deleted_at.is_(None))
        with self._database.read() as session:
            return RunPage(read_lines(session, where, *_ORDER_OF_ARMS), None, comparisons(session, [experiment_id]))

    def lines(self, run_ids: Sequence[str]) -> RunPage:
        """These runs as lines, newest first; those that are not there are left out. Raises NotFoundError for no id."""
        ids = [check_id(run_id, of="run") for run_id in run_ids]
        with self._database.read() as session:
            rows = read_lines(session, (Run.id.in_(ids), Run.deleted_at.is_(None)), Run.id.desc())
            return RunPage(rows, None, comparisons(session, {r.experiment_id for r in rows if r.experiment_id}))

    def run(self, run_id: str) -> RunDetail:
        """One run whole. Raises NotFoundError."""
        with self._database.read() as session:
            run = session.get(Run, check_id(run_id, of="run"))
            if run is None or run.deleted_at is not None:
                raise not_found(run_id, of="run")
            return detail(run, saved_events(session, run))

    def family(self, run_id: str) -> list[Relative]:
        """The tree of runs that a run belongs to, the eldest first. Raises NotFoundError."""
        with self._database.read() as session:
            if session.scalar(select(Run.id).where(Run.id == check_id(run_id, of="run"))) is None:
                raise not_found(run_id, of="run")
            return family(session, run_id)

    def experiment(self, experiment_id: str) -> ExperimentDetail:
        """One comparison with its arms whole. Raises NotFoundError."""
        with self._database.read() as session:
            experiment = session.get(Experiment, check_id(experiment_id, of="comparison"))
            if experiment is None or experiment.deleted_at is not None:
                raise not_found(experiment_id, of="comparison")
            mine = (Run.experiment_id == experiment_id, Run.deleted_at.is_(None))
            runs = session.scalars(select(Run).where(*mine).order_by(*_ORDER_OF_ARMS)).all()
            if not runs:
                raise not_found(experiment_id, of="comparison")
            return ExperimentDetail(
                id=experiment.id,
                created_at=experiment.created_at,
                checkpoint=experiment.checkpoint,
                prompt=experiment.prompt,
                baseline_index=experiment.baseline_index,
                title=experiment.title,
                note=experiment.note,
                arms=[detail(run, saved_events(session, run)) for run in runs],
            )

    def ids(self, filters: RunFilter) -> Iterator[str]:
        """The ids of all matching runs, newest first, read page by page. Raises RefusedError as `page` does."""
        before: str | None = None
        while True:
            with self._database.read() as session:
                query = select(Run.id).where(*choose(session, filters).conditions).order_by(Run.id.desc())
                if before is not None:
                    query = query.where(Run.id < before)
                found = session.scalars(query.limit(MAX_PAGE)).all()
            yield from found
            if len(found) < MAX_PAGE:
                return
            before = found[-1]
