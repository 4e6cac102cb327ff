"""Comparisons that are submitted: their seeds, their sizes, and that one bad arm refuses all."""

import pytest
from sqlalchemy import func, select

from app.history import History
from app.submit import Submitter, sample_seed
from models.db.runs import Run
from models.db.session import Database
from models.errors import LimitError, SettingError
from models.sampling import NEUTRAL, Settings
from tests.integration.app.by_hand import Worker


def num_runs(database: Database) -> int:
    with database.read() as session:
        return session.scalar(select(func.count()).select_from(Run)) or 0


def test_arms_share_one_drawn_seed_unless_they_have_their_own(
    submitter: Submitter, worker: Worker, history: History
) -> None:
    worker.appear()
    arms = [NEUTRAL, Settings(temperature=0.2), Settings(seed=5)]
    experiment_id, run_ids = submitter.submit_comparison("x", arms)
    experiment = history.experiment(experiment_id)
    assert [run.id for run in experiment.arms] == run_ids == worker.queued_ids()
    seeds = [run.settings.seed for run in experiment.arms]
    assert seeds[0] == seeds[1] != 5
    assert seeds[2] == 5
    assert [(run.arm_index, run.sample_index) for run in experiment.arms] == [(0, 0), (1, 0), (2, 0)]
    assert (experiment.prompt, experiment.baseline_index) == ("x", 0)


def test_several_seeds_are_the_same_for_all_arms(submitter: Submitter, worker: Worker, history: History) -> None:
    worker.appear()
    arms = [Settings(seed=7), Settings(seed=7, top_k=1)]
    experiment_id, run_ids = submitter.submit_comparison("x", arms, seeds=3)
    runs = history.experiment(experiment_id).arms
    assert len(run_ids) == len(set(run_ids)) == 6
    assert [run.settings.seed for run in runs[:3]] == [7, sample_seed(7, 1), sample_seed(7, 2)]
    assert [run.settings.seed for run in runs[:3]] == [run.settings.seed for run in runs[3:]]
    assert len({run.settings.seed for run in runs}) == 3


@pytest.mark.parametrize(("num_arms", "seeds"), [(0, 1), (1, 1), (65, 1), (2, 0), (2, 65), (64, 5)])
def test_comparisons_of_a_wrong_size_are_refused(
    submitter: Submitter, worker: Worker, database: Database, num_arms: int, seeds: int
) -> None:
    worker.appear()
    with pytest.raises(LimitError):
        submitter.submit_comparison("x", [NEUTRAL] * num_arms, seeds=seeds)
    assert num_runs(database) == 0


def test_one_bad_arm_refuses_the_comparison(submitter: Submitter, worker: Worker, database: Database) -> None:
    worker.appear()
    with pytest.raises(SettingError):
        submitter.submit_comparison("x", [NEUTRAL, Settings(banned=(999,))])
    assert num_runs(database) == 0
