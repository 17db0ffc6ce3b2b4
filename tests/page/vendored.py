"""Files of other projects that the page carries; `python -m tests.page.vendored` writes them.

`vendor.json` names each, with its package and version.

A package's own file is taken as it is, but for a bare module name in its imports: a page without a build step has no
place where such a name could be resolved, and an import map in the page would be an inline script.
"""

import hashlib
import io
import json
import os
import tarfile
from pathlib import Path
from typing import NamedTuple

import urllib3

STATIC = Path(__file__).parents[2] / "layers" / "core" / "duecourse" / "page" / "static"
FOLDER = STATIC / "vendor"
LIST = FOLDER / "vendor.json"
REGISTRY = os.environ.get("NPM_CONFIG_REGISTRY", "https://registry.npmjs.org/")
BARE, RESOLVED = b'from"preact"', b'from"./preact.mjs"'


class Vendored(NamedTuple):
    """One file: its name here, its place in the package, and the hash of what lies here."""

    package: str
    version: str
    licence: str
    file: str
    path: str
    sha256: str


def listed() -> list[Vendored]:
    """Every file that `vendor.json` names."""
    return [Vendored(**one) for one in json.loads(LIST.read_text())]


def archive(package: str, version: str) -> dict[str, bytes]:
    """Files of a package in the registry. Raises urllib3's HTTPError where it does not answer."""
    url = f"{REGISTRY.rstrip('/')}/{package}/-/{package}-{version}.tgz"
    answer = urllib3.request("GET", url, timeout=20.0, retries=1)
    assert answer.status == 200, f"{url}: {answer.status}"
    with tarfile.open(fileobj=io.BytesIO(answer.data)) as packed:
        files = {member.name: packed.extractfile(member) for member in packed if member.isfile()}
        return {name.partition("/")[2]: file.read() for name, file in files.items() if file}


def as_carried(content: bytes) -> bytes:
    """A file of a package as it lies here."""
    return content.replace(BARE, RESOLVED)


def main() -> None:
    """Write each file from its package, and its hash into the list."""
    files = listed()
    packages = {(one.package, one.version): archive(one.package, one.version) for one in files}
    written = []
    for one in files:
        content = as_carried(packages[one.package, one.version][one.path])
        (FOLDER / one.file).write_bytes(content)
        written.append(one._replace(sha256=hashlib.sha256(content).hexdigest())._asdict())
    LIST.write_text(json.dumps(written, indent=2) + "\n")


if __name__ == "__main__":
    main()
