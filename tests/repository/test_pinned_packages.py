"""Packages of others: each pin has its hashes, what is deployed is what is tested, and the page of licences is true."""

import json
import re
from email.message import Message
from pathlib import Path

import pytest

from duecourse_local.reference import licences
from tests.support.project import ROOT

PINS = ROOT / "requirements"
FILES = [*(PINS / f"{name}.txt" for name in ("dev", "template", "guard")), *licences.PINNED.values()]
HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}")


def blocks(file: Path) -> list[str]:
    """Each pin with its hashes."""
    return re.split(r"\n(?=\S)", file.read_text().strip())


def name(file: Path) -> str:
    return str(file.relative_to(ROOT))


@pytest.mark.parametrize("file", FILES, ids=name)
def test_each_pin_has_hashes(file: Path) -> None:
    assert [pin for pin in blocks(file) if "==" not in pin or not HASH.search(pin)] == []


def test_what_is_deployed_has_the_pins_and_hashes_that_the_rest_is_tested_with() -> None:
    tested = set(blocks(PINS / "dev.txt"))
    for file in licences.PINNED.values():
        assert set(blocks(file)) <= tested, name(file)


def test_the_image_of_the_bridge_has_what_the_layer_has_and_the_sdk() -> None:
    layer, image = (licences.pins(licences.PINNED[place]) for place in ("core layer", "bridge's image"))
    assert layer.items() <= image.items()
    assert "boto3" in image


@pytest.mark.parametrize("file", ["Makefile", "layers/layer.mk", "layers/core/duecourse/bridge/Containerfile"])
def test_what_is_deployed_is_installed_by_its_hashes_alone(file: str) -> None:
    text = (ROOT / file).read_text().replace("\\\n", "")
    words = r"(pip install|install\.py) .*(-r|--requirement) \S*requirements"
    installs = [line for line in text.splitlines() if re.search(words, line)]
    kept = [line for line in installs if "localstack" not in line]
    assert kept
    assert [line for line in kept if "--require-hashes" not in line] == []


def test_the_page_of_licences_is_up_to_date() -> None:
    assert licences.PAGE.read_text() == licences.page(), "run: make reference"


def test_every_package_that_is_carried_names_its_licence_and_the_pinned_version() -> None:
    rows = re.findall(r"^\| ([\w.-]+) \| (\d\S*) \| ([^|]*) \|", licences.page(), re.MULTILINE)
    versions = {package: version for package, version, _ in rows}
    pinned = {pin: version for file in licences.PINNED.values() for pin, version in licences.pins(file).items()}
    vendored = {one["package"]: one["version"] for one in json.loads(licences.VENDORED.read_text())}
    assert versions == pinned | vendored
    assert vendored
    assert [package for package, _, licence in rows if not licence.strip()] == []


MIT, BSD = "License :: OSI Approved :: MIT License", "License :: OSI Approved :: BSD License"
WHOLE_TEXT = "Permission is hereby granted, free of charge, to any person"


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ([("License-Expression", "MIT"), ("License", "other"), ("Classifier", BSD)], "MIT"),
        ([("License", "BSD-3-Clause"), ("Classifier", BSD)], "BSD-3-Clause"),
        ([("License", "Dual License"), ("Classifier", BSD), ("Classifier", MIT)], "BSD License, MIT License"),
        ([("License", WHOLE_TEXT), ("Classifier", MIT)], "MIT License"),
        ([("Classifier", BSD), ("Classifier", "Topic :: Internet")], "BSD License"),
        ([], ""),
    ],
)
def test_a_licence_is_read_from_old_and_new_metadata(fields: list[tuple[str, str]], said: str) -> None:
    package = Message()
    for field, value in fields:
        package[field] = value
    assert licences.licence(package) == said
