"""The names by which the processes find each other: task, queues, Redis keys.

Every name that two processes must agree on is here and nowhere else.
"""

from typing import Final

GENERATE_TASK: Final = "decodelab.generate"
EXAMINE_TASK: Final = "decodelab.examine"

# How a worker says that a setting is wrong or its checkpoint unusable, so that starting it again is of no use
# (sysexits.h).
EXIT_CONFIGURATION: Final = 78

# Redis: who is alive. The sorted set holds worker ids by expiry (Redis seconds); each worker's own key has a TTL.
WORKERS_KEY: Final = "decodelab:workers"
PRESENCE_TTL_S: Final = 15
PRESENCE_EVERY_S: Final = 5

# Redis: cancel hints, one run id a message. The database row is the truth; the hint only makes it quick.
CANCEL_CHANNEL: Final = "decodelab:cancel"

# Redis: how long a run's stream stays after its end. While a run is active the stream has the longer TTL.
STREAM_TTL_AFTER_END_S: Final = 3600
STREAM_TTL_ACTIVE_S: Final = 24 * 3600

# Redis: how long a question about a saved run lives. `wanted` by who asks and `taken` by the worker that computes are
# renewed while they live; the answer stays for a moment only, as it can be had again.
EXAMINATION_TTL_S: Final = 6
ANSWER_TTL_S: Final = 60

# Redis: how long a tokenizer or chat template stays published without a worker that renews it.
PUBLISHED_TTL_S: Final = 24 * 3600


def queue_for(checkpoint: str) -> str:
    """The Celery queue that workers serving `checkpoint` consume."""
    return f"generate.{checkpoint}"


def stream_key(run_id: str) -> str:
    """The Redis stream with a run's events. The entry with id `{seq + 1}-0` is event `seq`."""
    return f"decodelab:run:{run_id}:events"


def attempt_key(run_id: str) -> str:
    """The highest attempt that has published to the run's stream; older attempts are fenced off by it."""
    return f"decodelab:run:{run_id}:attempt"


def worker_key(worker_id: str) -> str:
    """The JSON of one live worker's `models.presence.WorkerPresence`."""
    return f"decodelab:worker:{worker_id}"


def tokenizer_key(digest: str) -> str:
    """The gzipped `tokenizer.json` with this SHA-256, so that the page can count tokens without a network."""
    return f"decodelab:tokenizer:{digest}"


def chat_template_key(digest: str) -> str:
    """The gzipped JSON of the `models.chat_template.TemplateSource` with this digest, so that the web process can
    refuse a chat that the template does not take."""
    return f"decodelab:chat-template:{digest}"


def wanted_key(request_id: str) -> str:
    """There while somebody waits for the answer to an examination."""
    return f"decodelab:examine:{request_id}:wanted"


def taken_key(request_id: str) -> str:
    """There while a worker computes an examination; the worker's id."""
    return f"decodelab:examine:{request_id}:taken"


def answer_key(request_id: str) -> str:
    """The list whose only entry is `models.examination.encode`'s answer."""
    return f"decodelab:examine:{request_id}:answer"
