"""The composition root of the web process: settings -> clients -> pages -> server."""

import warnings
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

import gradio as gr
import uvicorn
from fastapi import FastAPI
from starlette.middleware.trustedhost import TrustedHostMiddleware

from app.api.routes import build_router
from app.examine import Examiner
from app.follow import Follower
from app.handlers import Handlers
from app.history import History
from app.overview import Overview
from app.pages.compare import compare
from app.pages.frame import MAX_SHORT, MAX_STREAMS
from app.pages.history import history
from app.pages.playground import playground
from app.pages.score import score
from app.pages.status import status
from app.parts import Parts
from app.serving import Serving
from app.settings import LOOPBACK, AppSettings
from app.streaming import Pages
from app.submit import Submitter
from app.theme import css, script, theme
from models.db.session import Database

MAX_WAITING_EVENTS: Final = 500
QUEUE_LOOKS_EVERY_S: Final = 0.01
PROGRESS_LOOKS_EVERY_S: Final = 0.5  # no handler reports progress by Gradio's own means
MAX_UPLOAD: Final = "1mb"  # the pages take no files; the route is Gradio's
CACHE_S: Final = 3600  # how often, and from what age on, Gradio's temporary files are deleted

# Templates are compiled in the browser, hence 'unsafe-eval'; nothing is fetched from anywhere else.
_POLICY: Final = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; font-src 'self' data:; connect-src 'self'; worker-src 'self' blob:; "
    "object-src 'none'; base-uri 'self'; form-action 'self'; frame-ancestors 'self'"
)
HEADERS: Final = (
    (b"content-security-policy", _POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
)

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


def build(settings: AppSettings) -> FastAPI:
    """The whole web application over real parts. Opens no connection before the first request."""
    database = Database(settings.database_url)
    serving = Serving(settings.redis_url)
    parts = Parts(
        serving=serving,
        submitter=Submitter(database, settings.redis_url, serving, settings),
        follower=Follower(database, settings.redis_url),
        history=History(database),
        overview=Overview(database, serving),
        examiner=Examiner(database, settings.redis_url, serving),
    )
    app = FastAPI(title="Decode Lab", docs_url=None, redoc_url=None)
    if settings.host in LOOPBACK:
        # The page asks for no login: without this a foreign site whose name is made to mean this machine could use it.
        app.add_middleware(TrustedHostMiddleware, allowed_hosts=[*LOOPBACK, "[::1]"])
    app.include_router(build_router(database, serving))
    return with_pages(app, parts, settings.checkpoint_names)


def with_pages(app: FastAPI, parts: Parts, checkpoints: tuple[str, ...]) -> FastAPI:
    """Mount the pages over `parts` at the root of `app`; routes that `app` has already go first."""
    demo = pages(Handlers(parts), checkpoints)
    with warnings.catch_warnings():
        # Gradio warns about server-side rendering of several pages even where it is off.
        warnings.filterwarnings("ignore", message="SSR mode is not supported", category=UserWarning)
        _mount(app, demo)
    app.add_middleware(SecurityHeaders)
    return app


def _mount(app: FastAPI, demo: gr.Blocks) -> None:
    gr.mount_gradio_app(
        app,
        demo,
        path="/",
        theme=theme(),
        css=css(),
        head=f'<meta name="color-scheme" content="light dark"><script>{script("nudge.js")}</script>',
        footer_links=[],
        run_history=False,
        allowed_paths=[],
        show_error=False,
        max_file_size=MAX_UPLOAD,
        enable_monitoring=False,
        ssr_mode=False,
        pwa=False,
        mcp_server=False,
    )


def pages(handlers: Handlers, checkpoints: tuple[str, ...]) -> gr.Blocks:
    """All pages as one Gradio application."""
    with Pages(title="Decode Lab", analytics_enabled=False, delete_cache=(CACHE_S, CACHE_S), fill_width=True) as demo:
        playground(demo, handlers)
    with demo.route("Compare", "/compare"):
        compare(demo, handlers)
    with demo.route("History", "/history"):
        history(demo, handlers, checkpoints)
    with demo.route("Score", "/score"):
        score(demo, handlers)
    with demo.route("Status", "/status"):
        status(demo, handlers)
    # Gradio holds one slot for each running event, whatever the events' own limits say.
    demo.max_threads = MAX_STREAMS + 4 * MAX_SHORT
    demo.queue(max_size=MAX_WAITING_EVENTS, default_concurrency_limit=MAX_SHORT, api_open=False)
    # Its queue looks for work a thousand times a second, which costs a tenth of a core that a worker could use.
    demo._queue.sleep_when_free = QUEUE_LOOKS_EVERY_S
    demo._queue.progress_update_sleep_when_free = PROGRESS_LOOKS_EVERY_S
    return demo


def serve(settings: AppSettings) -> None:
    """Serve until interrupted."""
    uvicorn.run(build(settings), host=settings.host, port=settings.port, log_level="info", access_log=False)


class SecurityHeaders:
    """Adds the headers to every answer; plain ASGI, so that a stream's disconnect reaches the application."""

    def __init__(self, app: Callable[[Message, Receive, Send], Awaitable[None]]) -> None:
        self._app = app

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *HEADERS]
            await send(message)

        await self._app(scope, receive, send_with_headers if scope["type"] == "http" else send)
