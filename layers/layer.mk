# How every layer is built, for one architecture: pinned wheels as bytecode alone, and PACKAGE where there is one, with its
# bytecode and without its test kit and its operators' page, which no function runs.
#
# sam runs `make build-<layer>` with ARTIFACTS_DIR set and no word about the architecture, in the folder that the template's
# Metadata names: platforms/<architecture>. By hand: make -C layers/core build-CoreLayer ARCH=x86_64 ARTIFACTS_DIR=/some/folder
.DELETE_ON_ERROR:
LAYERS := $(dir $(abspath $(lastword $(MAKEFILE_LIST))))
ARCH := $(or $(filter arm64 x86_64,$(notdir $(CURDIR))),arm64)
PYTHON := $(or $(shell command -v python3.11),python3)
TAG := $(shell cat $(LAYERS)platforms/$(ARCH)/platform.txt 2>/dev/null)

help: ## this list
	@grep -hE '^[A-Za-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 22

# Bytecode is read by the minor version that wrote it. The runtime's glibc is 2.26: wheels newer than manylinux2014 do not load there.
# The package keeps its sources, for tracebacks; "unchecked" spares the import a look at each. Those of the wheels are a
# quarter of the layer. A traceback names their files and lines all the same.
define layer
@test -n "$(ARTIFACTS_DIR)" || { echo "ARTIFACTS_DIR is not set" >&2; exit 2; }
@test -n "$(TAG)" || { echo "ARCH is arm64 or x86_64, not $(ARCH)" >&2; exit 2; }
@$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info[:2] == (3, 11) else "the layer wants Python 3.11 (PYTHON=...), and found %d.%d" % sys.version_info[:2])'
rm -rf "$(ARTIFACTS_DIR)/python"
$(PYTHON) -m pip install --quiet --disable-pip-version-check --no-compile --no-deps --only-binary=:all: --require-hashes \
  --platform $(TAG) --implementation cp --python-version 3.11 \
  --requirement "$(HERE)requirements.txt" --target "$(ARTIFACTS_DIR)/python"
rm -rf "$(ARTIFACTS_DIR)/python/bin"
$(compile) -b "$(ARTIFACTS_DIR)/python"
find "$(ARTIFACTS_DIR)/python" -name '*.py' -delete
$(if $(PACKAGE),cp -R "$(HERE)$(PACKAGE)" "$(ARTIFACTS_DIR)/python/")
$(if $(PACKAGE),rm -rf $(foreach room,testing page,"$(ARTIFACTS_DIR)/python/$(PACKAGE)/$(room)"))
find "$(ARTIFACTS_DIR)/python" -name __pycache__ -prune -exec rm -rf {} +
$(if $(PACKAGE),$(compile) "$(ARTIFACTS_DIR)/python/$(PACKAGE)")
endef
compile = $(PYTHON) -m compileall -q -j 0 --invalidation-mode unchecked-hash -s "$(ARTIFACTS_DIR)" -p /opt

.PHONY: help
