"""The page mounted in projects of FastAPI and Django, as the page on it says, served by uvicorn."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
import urllib3

from tests.support.project import ROOT

pytestmark = pytest.mark.slow

PAGE = ROOT / "docs" / "how-to" / "page.md"
BLOCK = re.compile(r"```python\n# (\S+)\n(.*?)```", re.DOTALL)
FASTAPI_LOGIN = """
from fastapi import Request

from main import app


@app.get("/login/{role}")
def login(request: Request, role: str) -> dict[str, str]:
    request.session["role"] = role
    return {}
"""
DJANGO_SETTINGS = """
from pathlib import Path

SECRET_KEY = "of-this-test"
DEBUG = False
ALLOWED_HOSTS = ["127.0.0.1", "ops.example"]
ROOT_URLCONF = "login"
INSTALLED_APPS = ["django.contrib.admin", "django.contrib.auth", "django.contrib.contenttypes",
                  "django.contrib.messages", "django.contrib.sessions"]
MIDDLEWARE = ["django.middleware.common.CommonMiddleware", "django.contrib.sessions.middleware.SessionMiddleware",
              "django.middleware.csrf.CsrfViewMiddleware", "django.contrib.auth.middleware.AuthenticationMiddleware"]
SESSION_ENGINE = "django.contrib.sessions.backends.signed_cookies"
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": Path(__file__).with_name("db")}}
USE_TZ = True
"""
DJANGO_LOGIN = """
from django.contrib.admin import site
from django.contrib.auth import login
from django.contrib.auth.models import User
from django.http import HttpResponse
from django.urls import path

from shop.urls import urlpatterns as own


def log_in(request, role):
    login(request, User.objects.get(username=role))
    return HttpResponse("{}")


urlpatterns = [path("login/<role>", log_in), path("admin/", site.urls), *own]
"""
DJANGO_SERVED = """
import os

os.environ["DJANGO_SETTINGS_MODULE"] = "shop.settings"
from django.core.asgi import get_asgi_application

app = get_asgi_application()
from django.contrib.auth.models import User
from django.core.management import call_command

call_command("migrate", verbosity=0)
User.objects.create_user("operator", is_staff=True)
User.objects.create_user("customer")
"""
WEBHOOK = {"id": "w1", "kind": "webhook", "payload": {"url": "https://example.com/"}, "delay": "PT1H"}


class Site(NamedTuple):
    """A served project, as one browser sees it."""

    url: str
    cookies: dict[str, str]

    def ask(self, method: str, path: str, body: object = None, **headers: str) -> urllib3.BaseHTTPResponse:
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        given["cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        content = None if body is None else json.dumps(body)
        with urllib3.PoolManager(retries=False) as http:
            answer = http.request(method, self.url + path, headers=given, body=content)
        for one in answer.headers.getlist("set-cookie"):
            name, _, value = one.partition(";")[0].partition("=")
            self.cookies[name] = value
        return answer

    def change(self, method: str, path: str, body: object = None, **headers: str) -> urllib3.BaseHTTPResponse:
        own = {"origin": self.url, "x_duecourse_page": "1", "content_type": "application/json"}
        return self.ask(method, path, body, **{**own, **headers})


def write(folder: Path, **files: str) -> None:
    """The files that the page names, and others of a project."""
    every = {
        **dict(BLOCK.findall(PAGE.read_text())),
        **{name.replace("__", "/") + ".py": text for name, text in files.items()},
    }
    for name, text in every.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)


@contextmanager
def served(folder: Path, name: str, *options: str) -> Iterator[Site]:
    """The application, served from the folder, on a ledger in the folder."""
    command = [sys.executable, "-m", "uvicorn", name, "--port", "0", "--lifespan", "off", *options]
    variables = {"DUECOURSE_STORE": f"leveldb://{folder}/ledger", "SESSION_KEY": "of-this-test"}
    with subprocess.Popen(
        command,
        cwd=folder,
        env={**os.environ, **variables},
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stderr is not None
        try:
            lines = []
            for line in process.stderr:
                lines.append(line)
                if found := re.search(r"running on (http://\S+)", line):
                    yield Site(found[1], {})
                    return
            pytest.fail("".join(lines))
        finally:
            process.kill()


@pytest.fixture(params=["fastapi", "fastapi behind a proxy", "django"])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Site, str]]:
    """A project, and the path of its page in a browser's address."""
    match request.param:
        case "fastapi":
            write(tmp_path, login=FASTAPI_LOGIN)
            project, public = served(tmp_path, "login:app"), "/ops"
        case "django":
            write(tmp_path, login=DJANGO_LOGIN, served=DJANGO_SERVED, shop__settings=DJANGO_SETTINGS)
            project, public = served(tmp_path, "served:app"), "/ops"
        case _:
            write(tmp_path, login=FASTAPI_LOGIN)
            project, public = served(tmp_path, "login:app", "--root-path", "/team"), "/team/ops"
    with project as one:
        yield one, public


def test_the_page_works_where_it_is_mounted_for_those_whom_the_project_lets_in(site: tuple[Site, str]) -> None:
    browser, public = site
    assert browser.ask("GET", "/ops/").status in {302, 403}
    browser.ask("GET", "/login/customer")
    assert browser.ask("GET", "/ops/api/queues").status in {302, 403}
    browser.ask("GET", "/login/operator")
    view = browser.ask("GET", "/ops/tasks/w1")
    assert f'<base href="{public}/">' in view.data.decode()
    assert "default-src 'none'" in view.headers["content-security-policy"]
    assert browser.ask("GET", "/ops/static/app.mjs").headers["content-type"].startswith("text/javascript")
    added = browser.change("POST", "/ops/api/tasks", WEBHOOK)
    assert (added.status, added.json()["task"]["id"]) == (201, "w1")
    assert browser.ask("GET", "/ops/api/tasks/w1").json()["task"]["state"] == "scheduled"
    missing = browser.ask("GET", "/ops/api/tasks/w2")
    assert (missing.status, missing.headers["content-type"]) == (404, "application/problem+json")
    assert browser.change("DELETE", "/ops/api/tasks/w1", origin="https://evil.example").status == 403
    assert browser.change("DELETE", "/ops/api/tasks/w1").status == 204
