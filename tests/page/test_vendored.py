"""Files of other projects that the page carries: each is its package's own, with its version, licence and hash."""

from hashlib import sha256

import pytest
import urllib3

from tests.page.vendored import FOLDER, LIST, REGISTRY, archive, as_carried, listed

FILES = listed()
PACKAGES = sorted({(one.package, one.version) for one in FILES})


def test_the_list_names_each_file_and_its_hash() -> None:
    found = {path.name: sha256(path.read_bytes()).hexdigest() for path in FOLDER.iterdir() if path != LIST}
    assert found == {one.file: one.sha256 for one in FILES}


def test_each_package_has_its_licence_beside_it() -> None:
    for package, _ in PACKAGES:
        assert [one.file for one in FILES if one.package == package and one.path == "LICENSE"], package


@pytest.mark.slow
@pytest.mark.parametrize(("package", "version"), PACKAGES)
def test_each_file_is_as_its_package_has_it(package: str, version: str) -> None:
    try:
        packed = archive(package, version)
    except urllib3.exceptions.HTTPError as error:
        pytest.skip(f"NO REGISTRY: what the page carries is NOT compared with {REGISTRY} ({type(error).__name__})")
    for one in FILES:
        if (one.package, one.version) == (package, version):
            assert as_carried(packed[one.path]) == (FOLDER / one.file).read_bytes(), one.file
