"""Fixtures of loaded checkpoints, for the test folders that need them: the tiny ones, and the default one."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from models.environment import DEFAULT_CHECKPOINTS
from models.errors import CheckpointError
from tests.conftest import missing
from tests.fakes import checkpoints, tokenizers
from workers.engine.catalog import Catalog, prepare
from workers.engine.checkpoint import Checkpoint, load_checkpoint


@pytest.fixture(autouse=True)
def few_threads(request: pytest.FixtureRequest) -> Iterator[None]:
    """One torch thread for tiny networks, and for all beside other tests: on a busy machine threads wait for each other
    far longer than they work."""
    before = torch.get_num_threads()
    if request.node.get_closest_marker("checkpoint") is None or "PYTEST_XDIST_WORKER" in os.environ:
        torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def tiny_llama(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    """Rotary positions, grouped keys and values."""
    return checkpoints.load(checkpoints.write_llama(tmp_path_factory.mktemp("checkpoint") / "llama"))


@pytest.fixture(scope="session")
def tiny_gpt2(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    """Absolute positions."""
    return checkpoints.load(checkpoints.write_gpt2(tmp_path_factory.mktemp("checkpoint") / "gpt2"))


@pytest.fixture(params=["tiny_llama", "tiny_gpt2"])
def tiny(request: pytest.FixtureRequest) -> Checkpoint:
    """Once for each kind of positions."""
    checkpoint: Checkpoint = request.getfixturevalue(request.param)
    return checkpoint


@pytest.fixture(scope="session", params=["llama", "gpt2"])
def small(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    """A vocabulary that fits into one account, once for each kind of positions."""
    write = {"llama": checkpoints.write_llama, "gpt2": checkpoints.write_gpt2}[request.param]
    folder = tmp_path_factory.mktemp("checkpoint") / request.param
    return checkpoints.load(write(folder, tokenizers.cleaning(), vocab_size=checkpoints.SMALL_VOCAB_SIZE))


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The data folder with the default checkpoint, fetched and converted where it is absent."""
    folder = Path(os.environ.get("DECODELAB_DATA", "data")).resolve()
    try:
        prepare(Catalog.parse(DEFAULT_CHECKPOINTS, folder).entry())
    except CheckpointError as exc:
        missing(f"the default checkpoint: {exc.message}")
    return folder


@pytest.fixture(scope="session")
def default_checkpoint(data_folder: Path) -> Checkpoint:
    """SmolLM2-135M-Instruct in float32."""
    return load_checkpoint(Catalog.parse(DEFAULT_CHECKPOINTS, data_folder).entry(), device="cpu", dtype="float32")
