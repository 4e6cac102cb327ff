"""Export and import in a real browser: what comes back is what went out."""

import csv
import io
from pathlib import Path

import orjson
import pytest
from playwright.sync_api import expect

from models.db.runs import Run
from tests.e2e.conftest import Site
from tests.e2e.saved_site import Saved

pytestmark = pytest.mark.browser


def test_export_delete_import_gives_the_same_back(saved_site: Site, saved: Saved, tmp_path: Path) -> None:
    run_id = saved.run("=1+1", " \0 odd \u2028 text", tags=["t"], title="named")
    saved.run("other")
    page = saved_site.open("/history")
    page.locator(f"[data-run='{run_id}']").locator(".dl-pick").click()
    with page.expect_download() as download:
        page.click("[data-export-chosen=jsonl]")
    file = tmp_path / "runs.jsonl"
    download.value.save_as(file)
    (exported,) = file.read_bytes().splitlines()
    assert orjson.loads(exported)["id"] == run_id
    with page.expect_download() as download:
        page.click("[data-export-chosen=csv]")
    (row,) = csv.DictReader(io.StringIO(Path(download.value.path()).read_text("utf-8-sig"), newline=""))
    assert (row["prompt"], row["text"], row["mean_raw_logprob"]) == ("'=1+1", " \0 odd \u2028 text", "-0.5")
    with saved.database.write() as session:
        session.delete(session.get_one(Run, run_id))
    page.reload()
    page.wait_for_selector("[data-run]")
    page.set_input_files("[data-import]", file)
    expect(page.locator(".dl-notice")).to_contain_text("1 run would be added. First: “=1+1”.")
    assert run_id not in saved.ids()
    page.click(".dl-notice button >> nth=0")
    expect(page.locator(".dl-notice")).to_contain_text("1 run added")
    expect(page.locator(f"[data-run='{run_id}']").locator(".dl-start")).to_have_text("named")
    again = page.request.get(f"{saved.url}/api/export?id={run_id}").body()
    assert again == exported + b"\n"
    page.set_input_files("[data-import]", file)
    expect(page.locator(".dl-notice")).to_contain_text("0 runs would be added, 1 here already")
