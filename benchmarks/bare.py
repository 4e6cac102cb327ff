"""What Redis itself takes: as many streams and bytes as 8 runs write, from one idle process to another.

    python -m benchmarks.bare URL SECONDS

Prints the milliseconds from XADD to XREAD as a JSON list. The processes have neither an interpreter to share with a
network nor anything to compute; what they share with it is the cores and their caches.
"""

import asyncio
import json
import sys
import threading
import time

import redis
import redis.asyncio

NUM_STREAMS = 8
EVENT_BYTES = 3500  # a token with 20 candidates
PAUSE_S = 0.06  # a step of 8 rows
IDLE_MS = 1000


def key(number: int) -> str:
    return f"decodelab-bench:bare:{number}"


def write(client: redis.Redis, seconds: float, written_s: dict[int, float]) -> None:
    """One entry for every stream, in one round trip, again and again."""
    event = b"x" * EVENT_BYTES
    deadline = time.perf_counter() + seconds
    number = 0
    while time.perf_counter() < deadline:
        time.sleep(PAUSE_S)
        number += 1
        pipeline = client.pipeline(transaction=False)
        for stream in range(NUM_STREAMS):
            pipeline.xadd(key(stream), {"event": event}, id=f"{number}-0")
        written_s[number] = time.perf_counter()
        pipeline.execute()


async def read(url: str, stream: int, written_s: dict[int, float]) -> list[float]:
    """Milliseconds that the entries of one stream took, until none comes any more."""
    waits_ms = []
    last = "0-0"
    async with redis.asyncio.from_url(url) as client:
        while answer := await client.xread({key(stream): last}, block=IDLE_MS):
            read_s = time.perf_counter()
            for entry_id, _ in answer[0][1]:
                last = entry_id.decode()
                waits_ms.append(1000 * (read_s - written_s[int(last.partition("-")[0])]))
    return waits_ms


async def main(url: str, seconds: float) -> list[float]:
    written_s: dict[int, float] = {}
    client = redis.Redis.from_url(url)
    client.delete(*(key(stream) for stream in range(NUM_STREAMS)))
    writer = threading.Thread(target=write, args=(client, seconds, written_s))
    writer.start()
    found = await asyncio.gather(*(read(url, stream, written_s) for stream in range(NUM_STREAMS)))
    writer.join()
    client.delete(*(key(stream) for stream in range(NUM_STREAMS)))
    return [wait for waits in found for wait in waits]


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asyncio.run(main(sys.argv[1], float(sys.argv[2])))))
