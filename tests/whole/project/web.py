"""Reports over HTTP: asked for now, written a moment later."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from functions.report.app import Report, Summary, report

from duecourse import AsyncClient


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with AsyncClient.from_env() as app.state.client:
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/reports/{id}", status_code=202)
async def ask(id: str, wanted: Report) -> Any:
    added = await report.on(app.state.client).add(wanted, id=id, delay=0.5, retry={"max_attempts": 1})
    return {"id": added.task.id, "due_at": added.task.due_at}


@app.get("/reports/{id}")
async def read(id: str) -> Summary:
    return await report.on(app.state.client).wait(id, timeout=30)
