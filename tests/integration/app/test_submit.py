"""What is refused, what is saved, and what reaches the queue."""

import socket
import time

import pytest
from sqlalchemy import func, select

from app.history import History, RunFilter
from app.render.history import history_rows
from app.serving import Serving
from app.settings import AppSettings
from app.submit import Submitter
from models.constraint import Constraint
from models.db.runs import Run
from models.db.session import Database
from models.errors import (
    BrokerUnavailableError,
    DecodeLabError,
    LimitError,
    NoWorkerError,
    PromptError,
    SettingError,
    UnknownCheckpointError,
)
from models.events import Status
from models.sampling import NEUTRAL, Settings
from tests.fakes.services import Valkey
from tests.integration.app.by_hand import CONTEXT, Worker


def num_runs(database: Database) -> int:
    with database.read() as session:
        return session.scalar(select(func.count()).select_from(Run)) or 0


def test_run_is_saved_whole_and_its_id_is_on_the_queue(submitter: Submitter, worker: Worker, history: History) -> None:
    info = worker.appear()
    run_id = submitter.submit("two words", Settings(temperature=0.5), checkpoint="tiny")
    run = history.run(run_id)
    assert run.status is Status.QUEUED
    assert run.prompt == "two words"
    assert run.settings == Settings(temperature=0.5, seed=run.settings.seed)
    assert run.settings.seed is not None
    assert 0 <= run.settings.seed < 2**32
    assert run.enqueued_at is not None
    assert (run.checkpoint, run.weights_digest) == ("tiny", info.weights_digest)
    assert worker.queued_ids() == [run_id]


def test_a_score_is_a_run_with_its_text(submitter: Submitter, worker: Worker, history: History) -> None:
    worker.appear()
    run = history.run(submitter.submit("two", NEUTRAL, given_text=" words"))
    assert (run.kind, run.prompt, run.given_text, run.text) == ("score", "two", " words", "")
    assert worker.queued_ids() == [run.id]
    assert history.run(submitter.submit("two", NEUTRAL)).kind == "generate"
    page = history.page(RunFilter())
    assert [row.kind for row in page.rows] == ["generate", "score"]
    assert ["scored" in line for line in history_rows(page, is_grouped=False).split("<tr data-run")[1:]] == [
        False,
        True,
    ]


@pytest.mark.parametrize(
    ("text", "error", "words"),
    [
        ("", PromptError, ["text is empty"]),
        ("a\ud800b", PromptError, ["Character 1 of the text", "U+D800"]),
        ("x" * (CONTEXT - 1), PromptError, ["The prompt has 2 tokens", f"the text {CONTEXT - 1}", str(CONTEXT)]),
        ("x" * 1_000_001, LimitError, ["The text has 1,000,001"]),
    ],
)
def test_a_text_that_cannot_be_scored_is_refused(
    submitter: Submitter, worker: Worker, database: Database, text: str, error: type[DecodeLabError], words: list[str]
) -> None:
    worker.appear()
    with pytest.raises(error) as refused:
        submitter.submit("xx", NEUTRAL, given_text=text)
    assert refused.value.field == "text"
    assert all(word in refused.value.message for word in words)
    assert num_runs(database) == 0


def test_a_given_text_is_not_searched_for(submitter: Submitter) -> None:
    with pytest.raises(SettingError, match="num_beams: it is 4"):
        submitter.submit("two", NEUTRAL.with_changes(num_beams=4), given_text=" words")


def test_given_seed_is_kept_and_drawn_seeds_differ(submitter: Submitter, worker: Worker, history: History) -> None:
    worker.appear()
    given = history.run(submitter.submit("x", Settings(seed=2**64 - 1)))
    assert given.settings.seed == 2**64 - 1
    drawn = {history.run(submitter.submit("x", NEUTRAL)).settings.seed for _ in range(5)}
    assert len(drawn) == 5


@pytest.mark.parametrize(
    ("prompt", "settings", "error", "words"),
    [
        ("", NEUTRAL, PromptError, ["empty"]),
        ("a\ud800b", NEUTRAL, PromptError, ["Character 1", "U+D800"]),
        ("x" * CONTEXT, NEUTRAL, PromptError, [str(CONTEXT), "tiny"]),
        ("x" * 5000, NEUTRAL, PromptError, ["5000", str(CONTEXT)]),
        ("x" * 1_000_001, NEUTRAL, LimitError, ["1,000,001", "1,000,000"]),
        ("x", Settings(stop_token_ids=(258,)), SettingError, ["stop_token_ids", "258", "257"]),
        ("x", Settings(logit_bias={999: 1.0}), SettingError, ["logit_bias", "999"]),
        ("x", Settings(banned=("ab",)), SettingError, ["banned", "'ab'", "2 tokens"]),
        ("x", Settings(constraint=Constraint(regex="(a")), SettingError, ["constraint.regex", "unclosed group"]),
        ("x", Settings(constraint=Constraint(json_schema={"$ref": "#"})), SettingError, ["nothing can satisfy it"]),
        (None, NEUTRAL, PromptError, ["NoneType"]),
    ],
)
def test_refusals_name_what_is_wrong_and_save_nothing(
    submitter: Submitter,
    worker: Worker,
    database: Database,
    prompt: str,
    settings: Settings,
    error: type[DecodeLabError],
    words: list[str],
) -> None:
    worker.appear()
    with pytest.raises(error) as caught:
        submitter.submit(prompt, settings)
    for word in words:
        assert word in caught.value.message
    assert num_runs(database) == 0
    assert worker.queued_ids() == []


def test_prompts_at_the_edge_of_the_context(submitter: Submitter, worker: Worker) -> None:
    worker.appear()
    submitter.submit("x" * (CONTEXT - 1), NEUTRAL)
    submitter.submit("x" * CONTEXT, Settings(max_tokens=0))
    with pytest.raises(PromptError):
        submitter.submit("x" * (CONTEXT + 1), Settings(max_tokens=0))


def test_special_tokens_count_as_the_switch_says(submitter: Submitter, worker: Worker) -> None:
    worker.appear()
    prompt = "<s>" * 6  # 6 tokens when parsed, 18 as text
    submitter.submit(prompt, Settings(parse_special=True))
    with pytest.raises(PromptError, match="18 tokens"):
        submitter.submit(prompt, NEUTRAL)


def test_one_token_may_be_banned_by_its_text(submitter: Submitter, worker: Worker) -> None:
    worker.appear()
    submitter.submit("x", Settings(banned=("a", "</s>", 3)))


def test_empty_prompt_runs_from_bos_and_bos_counts(submitter: Submitter, worker: Worker) -> None:
    worker.appear(adds_bos=True)
    submitter.submit("", NEUTRAL)
    with pytest.raises(PromptError, match=f"{CONTEXT} tokens"):
        submitter.submit("x" * (CONTEXT - 1), NEUTRAL)


def test_without_a_published_tokenizer_the_worker_decides(submitter: Submitter, worker: Worker) -> None:
    worker.appear(has_tokenizer=False)
    submitter.submit("x" * 5000, Settings(banned=("ab",)))


def test_unknown_checkpoint_names_the_served_ones(submitter: Submitter, worker: Worker) -> None:
    worker.appear()
    with pytest.raises(UnknownCheckpointError, match="served are tiny") as caught:
        submitter.submit("x", NEUTRAL, checkpoint="gpt-17")
    assert caught.value.field == "checkpoint"


def test_no_worker_says_which_command_starts_one(submitter: Submitter, worker: Worker, database: Database) -> None:
    with pytest.raises(NoWorkerError, match=r"make up.*decodelab worker"):
        submitter.submit("x", NEUTRAL)
    worker.appear()
    with pytest.raises(NoWorkerError, match="'other'"):
        submitter.submit("x", NEUTRAL, checkpoint="other")
    worker.vanish()
    with pytest.raises(NoWorkerError):
        submitter.submit("x", NEUTRAL, checkpoint="tiny")
    assert num_runs(database) == 0


def test_redis_away_refuses_quickly_and_saves_nothing(
    submitter: Submitter, worker: Worker, valkey: Valkey, database: Database
) -> None:
    worker.appear()
    valkey.kill()
    began = time.monotonic()
    with pytest.raises(BrokerUnavailableError, match="make up"):
        submitter.submit("x", NEUTRAL)
    assert time.monotonic() - began < 2
    assert num_runs(database) == 0


def test_silent_redis_refuses_within_two_seconds(database: Database, app_settings: AppSettings) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # accepts and never answers
        url = f"redis://:secret@127.0.0.1:{silent.getsockname()[1]}/0"
        submitter = Submitter(database, url, Serving(url), app_settings)
        began = time.monotonic()
        with pytest.raises(BrokerUnavailableError) as caught:
            submitter.submit("x", NEUTRAL)
        assert time.monotonic() - began < 2
    assert "secret" not in caught.value.message


def test_redis_lost_after_the_commit_leaves_the_run_for_the_sweeper(
    submitter: Submitter, worker: Worker, valkey: Valkey, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker.appear()
    save = submitter._save

    def save_then_lose_redis(*args: object) -> None:
        save(*args)
        valkey.kill()

    monkeypatch.setattr(submitter, "_save", save_then_lose_redis)
    began = time.monotonic()
    run_id = submitter.submit("x", NEUTRAL)
    assert time.monotonic() - began < 5
    run = history.run(run_id)
    assert (run.status, run.enqueued_at) == (Status.QUEUED, None)
    # It can still be ended, without Redis and without a worker.
    submitter.cancel(run_id)
    assert history.run(run_id).status is Status.CANCELLED
    # The queue works again by itself.
    valkey.start()
    worker.appear()
    monkeypatch.undo()
    again = submitter.submit("x", NEUTRAL)
    assert worker.queued_ids() == [again]


def test_what_was_saved_is_answered_with_its_id_even_when_everything_is_lost_after_it(
    submitter: Submitter, worker: Worker, valkey: Valkey, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker.appear()
    save = submitter._save

    def save_then_lose_both(*args: object) -> None:
        save(*args)
        valkey.kill()
        monkeypatch.setattr(submitter, "_database", Database("postgresql+psycopg://nobody@127.0.0.1:1/none"))

    monkeypatch.setattr(submitter, "_save", save_then_lose_both)
    run_id = submitter.submit("x", NEUTRAL)
    assert history.run(run_id).status is Status.QUEUED


def test_queue_limit_is_named(database: Database, worker: Worker, app_settings: AppSettings, serving: Serving) -> None:
    worker.appear()
    small = app_settings.model_copy(update={"max_queued": 2})
    submitter = Submitter(database, app_settings.redis_url, serving, small)
    submitter.submit("x", NEUTRAL)
    submitter.submit("x", NEUTRAL)
    with pytest.raises(LimitError, match="2 runs wait already and at most 2"):
        submitter.submit("x", NEUTRAL)
    submitter.close()
