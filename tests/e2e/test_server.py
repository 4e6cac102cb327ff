"""What the web server gives out, and what it does not."""

import httpx
import pytest

from tests.e2e.server import ServerThread
from tests.fakes.app import FakeStack

PATHS = [
    "/file=/etc/passwd",
    "/gradio_api/file=/etc/passwd",
    "/gradio_api/file=../../../../etc/passwd",
    "/gradio_api/file=%2e%2e/%2e%2e/etc/passwd",
    "/gradio_api/file=/nowhere/at/all",
    "/gradio_api/file=pyproject.toml",
    "/gradio_api/file=http://127.0.0.1:9/",
    "/static/../../../../etc/passwd",
    "/assets/../../../../etc/passwd",
    "/gradio_api/stream/../../etc/passwd",
    "/gradio_api/monitoring",
]


@pytest.fixture
def url(_fake_server: tuple[ServerThread, FakeStack]) -> str:
    return _fake_server[0].url


@pytest.mark.parametrize("path", PATHS)
def test_no_file_of_the_machine_is_served(url: str, path: str) -> None:
    # httpx would tidy the path up before sending it; a raw path is what an attacker sends.
    with httpx.Client() as client:
        request = client.build_request("GET", url)
        request.url = request.url.copy_with(raw_path=path.encode())
        answer = client.send(request)
    assert answer.status_code in (403, 404)
    assert "root:" not in answer.text
    assert "[project]" not in answer.text


def test_existing_and_missing_files_look_alike(url: str) -> None:
    answers = [httpx.get(f"{url}/gradio_api/file={path}") for path in ("/etc/passwd", "/etc/no-such-file")]
    assert answers[0].status_code == answers[1].status_code


def test_every_page_has_the_headers(url: str) -> None:
    for path in ("/", "/compare", "/history"):
        headers = httpx.get(url + path).headers
        assert "default-src 'self'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"


def test_events_are_not_offered_as_an_api(url: str) -> None:
    answer = httpx.get(f"{url}/gradio_api/info").json()
    assert answer["named_endpoints"] == {}
