"""A Celery worker whose tasks run agents in prefork children, with a broker in a directory."""

from __future__ import annotations

import os

from celery import Celery
from work import work

here = os.environ["CELERY_DIRECTORY"]
app = Celery("celery_app", broker="filesystem://", backend=f"file://{here}/results")
app.conf.broker_transport_options = {"data_folder_in": f"{here}/queue", "data_folder_out": f"{here}/queue"}
app.conf.broker_connection_retry_on_startup = True


@app.task
def run(text: str) -> str:
    """Run the graph in a child of the worker."""
    return f"{os.getpid()} {work(text)}"


if __name__ == "__main__":
    for result in [run.delay(f"task{number}") for number in range(4)]:
        print(result.get(timeout=120, interval=0.1))
