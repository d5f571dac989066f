"""The plain loop in a thread; the main thread sleeps: in `join`, or as `--main asyncio` or `sleep`."""

import asyncio
import runpy
import sys
import threading
import time
from pathlib import Path

how = "join"
if "--main" in sys.argv:
    at = sys.argv.index("--main")
    how = sys.argv[at + 1]
    del sys.argv[at : at + 2]


def train() -> None:
    runpy.run_path(str(Path(__file__).with_name("plain.py")), run_name="__main__")


async def serve() -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    threading.Thread(
        target=lambda: (thread.join(), loop.call_soon_threadsafe(stopped.set)), daemon=True
    ).start()
    await stopped.wait()


thread = threading.Thread(target=train)
thread.start()
if how == "asyncio":
    asyncio.run(serve())
elif how == "sleep":
    while thread.is_alive():
        time.sleep(5)
else:
    thread.join()
