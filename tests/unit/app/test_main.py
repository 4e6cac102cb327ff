"""The web application as it is composed."""

from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from app.main import build
from app.settings import AppSettings


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:7860", 200),
        ("localhost", 200),
        ("[::1]:7860", 200),
        ("evil.example", 400),
        ("127.0.0.1.evil.example", 400),
    ],
)
def test_a_page_without_a_login_is_for_this_machine_alone(tmp_path: Path, host: str, status: int) -> None:
    client = TestClient(build(AppSettings(data=tmp_path)))
    assert client.get("/health", headers={"host": host}).status_code == status


def test_the_operator_may_open_it(tmp_path: Path) -> None:
    client = TestClient(build(AppSettings(data=tmp_path, host="0.0.0.0", insecure=True)))
    assert client.get("/health", headers={"host": "lab.example"}).status_code == 200
