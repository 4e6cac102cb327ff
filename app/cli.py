"""`decodelab`: every command. Their JSON is a contract (app/run_json.py).

Exit status: 0 done; 1 the run failed, or `doctor` found something missing; 2 an error, told in words or
as JSON; 130 Ctrl-C.
With `--json` standard output holds one JSON object and nothing else, an error included.
"""

import io
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from app.cli_runs import runs_app
from app.exits import FAILED, INTERRUPTED, AsJson, answering
from app.settings import AppSettings
from models.chat import Chat
from models.errors import PromptError, SettingError
from models.events import Event
from models.sampling import Settings

if TYPE_CHECKING:
    from app.running import Outcome, Request

_HELP = "Watch how a language model picks its next token. `decodelab up` starts everything; the rest uses it."

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help=_HELP)

Local = Annotated[bool, typer.Option("--local", help="Run the engine here, without the stack; nothing is saved.")]
CheckpointName = Annotated[str | None, typer.Option("--checkpoint", help="A served checkpoint's name.")]


@app.command()
def up() -> None:
    """Start the whole stack on this machine and print the address when the page answers. Ctrl-C stops it."""
    from app.launcher import up as start

    with answering(False):
        start(AppSettings.load(), lambda text: typer.echo(text))


@app.command()
def web() -> None:
    """Start the page alone."""
    from app.main import serve

    with answering(False):
        settings = AppSettings.load()
        settings.check_address()
        serve(settings)


@app.command()
def worker() -> None:
    """Start one worker beside a running stack; DECODELAB_SERVE names its checkpoint."""
    with answering(False):
        environment = AppSettings.load().environment()
    os.execve(sys.executable, [sys.executable, "-m", "workers"], environment)


@app.command()
def migrate() -> None:
    """Bring the database to the newest revision."""
    from app.migrate import migrate as run_migrations

    with answering(False):
        run_migrations(AppSettings.load())
        typer.echo("The database is at the newest revision.")


@app.command()
def doctor(as_json: AsJson = False) -> None:
    """What is installed, reachable and missing, and what to do about it."""
    from app.console import print_checks, print_json
    from app.doctor import examine, report

    with answering(as_json):
        checks = examine(AppSettings.load())
        if as_json:
            print_json(report(checks))
        else:
            print_checks(checks)
    if not all(check.is_ok for check in checks):
        raise typer.Exit(FAILED)


@app.command()
def generate(  # noqa: PLR0913 - one parameter an option
    prompt: Annotated[str | None, typer.Argument(help="The text to continue.")] = None,
    settings: Annotated[str, typer.Option("--settings", help="A JSON object, e.g. '{\"temperature\": 0}'.")] = "{}",
    chat: Annotated[bool, typer.Option("--chat", help="Say PROMPT to the checkpoint, in its chat template.")] = False,
    messages: Annotated[
        str | None,
        typer.Option("--messages", help='A chat in place of PROMPT: [{"role": "user", "content": "hi"}].'),
    ] = None,
    checkpoint: CheckpointName = None,
    as_json: AsJson = False,
    local: Local = False,
) -> None:
    """Continue a prompt or a chat; the text appears as it is generated. Ctrl-C cancels the run."""
    from app.console import print_ending, print_json, print_text
    from app.run_json import run_json
    from app.running import Request

    with answering(as_json):
        asked = _prompt(prompt, is_chat=chat, messages=messages)
        request = Request(asked, [Settings.parse_json(settings)], checkpoint)
        outcome = _run(request, ignore if as_json else print_text, local=local)
        if as_json:
            print_json(run_json(outcome.runs[0]))
        else:
            print_ending(outcome.runs[0])
    _exit(outcome)


@app.command()
def score(
    prompt: Annotated[str, typer.Argument(help="What stands before the text.")],
    text: Annotated[str, typer.Argument(help="The text whose tokens are judged.")],
    settings: Annotated[str, typer.Option("--settings", help="A JSON object, e.g. '{\"top_p\": 0.9}'.")] = "{}",
    checkpoint: CheckpointName = None,
    as_json: AsJson = False,
    local: Local = False,
) -> None:
    """How probable a text is after a prompt, token by token, and what the settings make impossible in it."""
    from app.console import print_json, print_score
    from app.run_json import run_json
    from app.running import Request

    with answering(as_json):
        request = Request(prompt, [Settings.parse_json(settings)], checkpoint, given_text=text)
        outcome = _run(request, ignore, local=local)
        if as_json:
            print_json(run_json(outcome.runs[0]))
        else:
            print_score(outcome.runs[0])
    _exit(outcome)


@app.command()
def compare(
    prompt: Annotated[str, typer.Argument(help="The text that every arm continues.")],
    arm: Annotated[
        list[str], typer.Option("--arm", help="An arm's settings as a JSON object; the first is the baseline.")
    ],
    seeds: Annotated[int, typer.Option("--seeds", help="Runs of each arm, under different seeds.")] = 1,
    checkpoint: CheckpointName = None,
    as_json: AsJson = False,
    local: Local = False,
) -> None:
    """Continue one prompt under several settings that share their noise."""
    from app.console import print_comparison, print_json
    from app.run_json import comparison_json
    from app.running import Request

    with answering(as_json):
        request = Request(prompt, [_arm(number, text) for number, text in enumerate(arm)], checkpoint, seeds)
        outcome = _run(request, ignore, local=local)
        if as_json:
            print_json(comparison_json(outcome.runs, experiment_id=outcome.experiment_id))
        else:
            print_comparison(outcome.runs)
    _exit(outcome)


def main() -> None:
    """The entry point of the `decodelab` program."""
    # A terminal that cannot show a character shows a substitute: an error there would end the run's display.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        app()
    except KeyboardInterrupt:  # before the command itself could answer it
        sys.exit(INTERRUPTED)


def ignore(_event: Event) -> None:
    """Show nothing of an event."""


def _run(request: "Request", on_event: Callable[[Event], None], *, local: bool) -> "Outcome":
    from app.console import say
    from app.running import run_here, run_on_stack

    settings = AppSettings.load()
    return run_here(settings, request, on_event) if local else run_on_stack(settings, request, on_event, say)


def _prompt(prompt: str | None, *, is_chat: bool, messages: str | None) -> str | Chat:
    """The raw prompt or the chat that the options mean. Raises PromptError."""
    if messages is not None:
        if prompt is not None:
            raise PromptError("a prompt and --messages are both given; give one of them")
        return Chat.parse_json(messages)
    if prompt is None:
        raise PromptError("there is no prompt; give a text, or a chat with --messages")
    return Chat.said(prompt) if is_chat else prompt


def _arm(number: int, text: str) -> Settings:
    try:
        return Settings.parse_json(text)
    except SettingError as exc:
        raise SettingError(f"arm {number}: {exc.message}", field=exc.field) from exc


def _exit(outcome: "Outcome") -> None:
    if not outcome.is_whole:
        raise typer.Exit(INTERRUPTED)
    if outcome.has_failed:
        raise typer.Exit(FAILED)


app.add_typer(runs_app, name="runs")

if __name__ == "__main__":
    main()
