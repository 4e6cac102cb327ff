"""Who owns a data folder, and what a command does where nobody does."""

from pathlib import Path

import pytest

from app.folder import is_locked, locked, make_folders
from app.running import Request, run_on_stack
from app.settings import AppSettings
from models.errors import BrokerUnavailableError
from models.sampling import Settings


def test_a_lock_lasts_as_long_as_its_owner(tmp_path: Path) -> None:
    assert not is_locked(tmp_path / "nowhere")
    make_folders(tmp_path)
    assert not is_locked(tmp_path)
    with locked(tmp_path):
        assert is_locked(tmp_path)
    assert not is_locked(tmp_path)


def test_a_run_is_not_given_to_the_stack_of_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DECODELAB_REDIS_URL", raising=False)
    make_folders(tmp_path)
    # What a launcher leaves when it is killed: the address may be another stack's by now.
    (tmp_path / "run" / "stack.json").write_text('{"redis_url": "redis://127.0.0.1:1/0"}')
    request = Request("the", [Settings()], checkpoint=None)
    with pytest.raises(BrokerUnavailableError, match=f"No stack runs on the data folder {tmp_path}"):
        run_on_stack(AppSettings(data=tmp_path), request, lambda event: None, lambda text: None)
