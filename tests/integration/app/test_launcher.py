"""The launcher's parts with real processes: ownership, ports, children that die, children that must not outlive it."""

import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import psutil
import pytest

from app.child import Child, describe, end
from app.folder import locked, make_folders
from app.launcher import up
from app.settings import AppSettings
from app.valkey import free_port, is_free
from models.errors import RefusedError, SettingError, UnavailableError
from tests.fakes.services import free_port as any_free_port
from tests.fakes.services import wait_until

REPOSITORY = Path(__file__).parents[3]


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, **more}


def run_python(code: str, *arguments: str) -> subprocess.Popen[str]:
    """A Python process that can import the project."""
    command = [sys.executable, "-c", textwrap.dedent(code), *arguments]
    return subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def test_a_second_owner_is_refused_with_the_first_ones_process(tmp_path: Path) -> None:
    make_folders(tmp_path)
    owner = run_python(
        """
        import sys, time
        from pathlib import Path
        from app.folder import locked
        with locked(Path(sys.argv[1])):
            print("owned", flush=True)
            time.sleep(60)
        """,
        str(tmp_path),
    )
    try:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "owned\n"
        with pytest.raises(RefusedError, match=f"process {owner.pid}"), locked(tmp_path):
            pass
    finally:
        owner.kill()
        owner.wait()
    with locked(tmp_path):  # a dead owner owns nothing
        pass


def test_children_do_not_outlive_a_launcher_that_is_killed(tmp_path: Path) -> None:
    launcher = run_python(
        """
        import os, sys, time
        from app.child import spawn
        child = spawn([sys.executable, "-c", "import time; time.sleep(60)"], os.environ, output=None)
        print(child.pid, flush=True)
        time.sleep(60)
        """
    )
    assert launcher.stdout is not None
    child = psutil.Process(int(launcher.stdout.readline()))
    assert child.is_running()
    launcher.send_signal(signal.SIGKILL)
    launcher.wait()
    wait_until(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE)


def test_a_dead_child_is_restarted_with_growing_pauses(tmp_path: Path) -> None:
    said: list[str] = []
    child = Child("worker", [sys.executable, "-c", "raise SystemExit(3)"], environment(), tmp_path / "worker.log")
    child.start()
    first = child.pid
    began = time.monotonic()
    while len(said) < 3:
        child.keep_alive(said.append)
        assert time.monotonic() - began < 20
        time.sleep(0.02)
    assert child.pid != first
    assert "worker ended (exit status 3); restarting it in 1 s" in said[0]
    assert "in 2 s" in said[1]
    assert "in 4 s" in said[2]
    assert str(tmp_path / "worker.log") in said[0]


def test_a_child_that_ignores_term_is_killed(tmp_path: Path) -> None:
    code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"
    child = Child("web", [sys.executable, "-c", code], environment(), tmp_path / "web.log")
    child.start()
    wait_until(lambda: "up" in (tmp_path / "web.log").read_text())
    began = time.monotonic()
    child.stop(0.5)
    assert time.monotonic() - began < 3
    assert child.exit_status == -signal.SIGKILL
    assert describe(child.exit_status) == "killed by SIGKILL"


def test_a_taken_port_is_passed_over(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert not is_free(port)
        assert free_port(port) > port


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UnavailableError, match=str(tmp_path / "file" / "data")):
        make_folders(tmp_path / "file" / "data")


def test_an_open_address_needs_the_operators_word(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"0\.0\.0\.0"):
        up(AppSettings(data=tmp_path, host="0.0.0.0"), print)


def test_a_chosen_port_that_is_taken_is_refused_before_anything_starts(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(RefusedError, match=f"Port {port} .* is taken"):
            up(AppSettings(data=tmp_path, port=port), print)


def test_a_redis_elsewhere_that_is_away_is_not_replaced(tmp_path: Path) -> None:
    settings = AppSettings(data=tmp_path, redis_url="redis://:secret@192.0.2.1:6379/0", port=any_free_port())
    with pytest.raises(UnavailableError, match=r"192\.0\.2\.1:6379 does not answer") as caught:
        up(settings, print)
    assert "secret" not in caught.value.message


def test_a_step_that_does_not_obey_is_ended_all_the_same() -> None:
    stubborn = run_python(
        """
        import signal, time
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        print("deaf", flush=True)
        time.sleep(60)
        """
    )
    assert stubborn.stdout is not None
    assert stubborn.stdout.readline() == "deaf\n"
    end(stubborn, 0.2)
    assert stubborn.returncode == -signal.SIGKILL
