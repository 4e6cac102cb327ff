"""What a command leaves behind when it does not end by itself."""

import json

import pytest
import typer

from app.exits import INTERRUPTED, REFUSED, answering
from models.errors import NotFoundError


def test_ctrl_c_is_one_json_object_and_its_status(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as ending, answering(True):
        raise KeyboardInterrupt
    assert ending.value.exit_code == INTERRUPTED
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "interrupted"


def test_a_refusal_of_what_is_no_text_is_json_too(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as ending, answering(True):
        raise NotFoundError("There is no run a\udcff.", field="id")
    assert ending.value.exit_code == REFUSED
    assert json.loads(capsys.readouterr().out)["error"]["message"] == "There is no run a\\udcff."
