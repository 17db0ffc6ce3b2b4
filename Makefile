# One word a task; each does the set-up it needs.
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
SHELL := /bin/bash
PY := .venv/bin/python
ARCH ?= arm64
# The first that runs and is of a version that we take: a shim on PATH may stand for a Python that is not there.
FITS := import sys; sys.exit(sys.version_info[:2] not in ((3, 11), (3, 12)))
BASE_PYTHON ?= $(shell for name in python3.11 python3.12 python3; do $$name -c '$(FITS)' 2>/dev/null && command -v $$name && break; done)
ARGS :=
# An image of a container may set it: each of the hundred processes of a suite would then compile the same again.
unexport PYTHONDONTWRITEBYTECODE
CHECKS := format lint types english api template

help: ## this list
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14

setup: .venv/.ready ## a .venv in this folder, from pinned requirements

.venv/.ready: requirements/dev.txt pyproject.toml
	@test -n "$(BASE_PYTHON)" || { echo "setup: duecourse needs Python 3.11 or 3.12, and PATH has neither ($$(python3 --version 2>&1)): install one, or name it: make setup BASE_PYTHON=/path/to/python3.12" >&2; exit 2; }
	@$(BASE_PYTHON) -c '$(FITS)' || { echo "setup: duecourse needs Python 3.11 or 3.12, and BASE_PYTHON=$(BASE_PYTHON) is $$($(BASE_PYTHON) --version 2>&1)" >&2; exit 2; }
	@$(BASE_PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "setup: $(BASE_PYTHON) cannot make a venv, its modules venv and ensurepip are missing: on Debian and Ubuntu, apt-get install python3-venv" >&2; exit 2; }
	@echo "setup: .venv in this folder with $$($(BASE_PYTHON) --version), once: 600 MB, one to three minutes"
	@cmp -s <($(PY) -c 'import pip, sys; print(sys.version)' 2>&1) <($(BASE_PYTHON) -c 'import sys; print(sys.version)') || $(BASE_PYTHON) -m venv --clear .venv
	@$(PY) .ci/install.py setup --use-pep517 --require-hashes -r requirements/dev.txt
	@$(PY) -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

setup-browser: ## the Chromium that tests look at the operators' page with (Debian's, where this is root)
	@for name in chromium chromium-browser google-chrome google-chrome-stable chrome; do command -v $$name >/dev/null && exit 0; done; \
	if test "$$(id -u)" = 0 && command -v apt-get >/dev/null && { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends chromium; } >/dev/null 2>&1; then exit 0; fi; \
	echo "setup-browser: NO BROWSER: the operators' page is not tested in one. Install Chromium: apt-get install chromium" >&2

demo: setup ## the whole story with real parts, in under a minute
	@.venv/bin/duecourse demo

up: setup ## the same stack, until Ctrl-C
	@.venv/bin/duecourse up

rabbitmq: setup ## a RabbitMQ of your own from the installed server (apt-get install rabbitmq-server), until Ctrl-C
	@.venv/bin/duecourse rabbitmq

# Three files at a time where much of it waits, two where the processors are full.
SUITE := $(PY) -m pytest --dist loadfile --no-loadscope-reorder

# What needs no server, no stack and no child process, and takes less than half a second.
QUICK := -m "not deployed and not matrix and not slow"

quick: setup ## all that runs in one process, on the ledger in memory, in about a minute (ARGS="..." for pytest)
	@PYTHONHASHSEED=$$$$ $(SUITE) --numprocesses 3 $(QUICK) $(ARGS)

test: setup ## every promise once, in about seven minutes on two idle cores (ARGS="..." for pytest)
	@PYTHONHASHSEED=$$$$ $(SUITE) --numprocesses 3 -m "not deployed and not matrix" $(ARGS)

test-matrix: setup ## what make test leaves out: further stores and servers, full length, what only releases need
	@PYTHONHASHSEED=$$$$ $(SUITE) --numprocesses 2 -m "not deployed and matrix" $(ARGS)

test-all: setup ## both, one after the other, whatever the first answers
	@$(MAKE) --no-print-directory --keep-going --jobs 1 test test-matrix

SEED := $(or $(SEED),$(shell date +%s))

chaos: setup ## seeded faults over 10,000 tasks and 1,000 schedules on three stages: eight minutes (SEED=... for the same again)
	@echo "chaos: SEED=$(SEED)"
	@$(PY) -m tests.whole.storm $(SEED) $(ARGS)

# What an application carries: library, client, handlers and test kit, on the store in memory. `-e .[dev]` takes what there
# are wheels of for that version of Python.
LIBRARY := $(addprefix tests/,api app base calls client guard ledger queues reminders ringing running schedules services tasks testing_kit worker)

test-library: ## the library on another Python, in a venv of its own: make test-library BASE_PYTHON=python3.13
	@$(BASE_PYTHON) -m venv .venv-$(notdir $(BASE_PYTHON))
	@.venv-$(notdir $(BASE_PYTHON))/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@.venv-$(notdir $(BASE_PYTHON))/bin/python -m pytest --numprocesses 2 --dist loadfile $(QUICK) $(LIBRARY) $(ARGS)

check: $(CHECKS:%=check-%) ## format, lint, types, plain English, the API against its own OpenAPI document, the template against rules

checks: # their names, for .ci/run
	@echo $(CHECKS:%=check-%)

check-format: setup
	@$(PY) -m ruff format --check .

check-lint: setup
	@$(PY) -m ruff check .
	@$(PY) -m tests.sizes
	@.venv/bin/lint-imports --no-cache --no-logo

check-types: setup
	@$(PY) -m mypy

check-english: setup
	@$(PY) -m tests.english

check-api: setup
	@$(PY) -m tests.fuzz

check-template: setup .venv-template/.ready
	@$(PY) -m tests.template_rules .venv-template

# In a venv of its own: SAM's translator wants an older pydantic. The last package is taken for AWS's cfn-guard and rules
# that it carries; what it needs of its own, the CDK, is left out.
.venv-template/.ready: requirements/template.txt requirements/guard.txt
	@echo "template: .venv-template with cfn-lint, cfn-guard and SAM's translator (half a minute, 260 MB)"
	@$(BASE_PYTHON) -m venv --clear .venv-template
	@.venv-template/bin/python .ci/install.py template --require-hashes -r requirements/template.txt
	@.venv-template/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r requirements/guard.txt
	@mkdir .venv-template/guard
	@tar xzf .venv-template/lib/python3.*/site-packages/cdklabs/cdk_validator_cfnguard/_jsii/*.jsii.tgz -C .venv-template/guard --strip-components 1
	@touch $@

audit: setup .venv-audit/.ready ## the pinned packages against known vulnerabilities (skipped where no service answers)
	@$(PY) -m tests.audit .venv-audit/bin/pip-audit

# In a venv of its own: what it needs is not to bound what we pin.
.venv-audit/.ready:
	@echo "audit: .venv-audit with pip-audit"
	@$(BASE_PYTHON) -m venv .venv-audit
	@.venv-audit/bin/python .ci/install.py audit pip-audit==2.10.1
	@touch $@

wheel: setup ## one wheel and one sdist into dist/
	@$(PY) -m hatchling build

reference: setup ## docs/api.md, the pages of settings, metrics and licences, and the pictures of schedules, written from the code
	@$(PY) -m duecourse_local.reference
	@$(PY) -m docs.pictures.draw

fix: setup ## format and what lint can mend
	@$(PY) -m ruff format .
	@$(PY) -m ruff check --fix .

bench: setup ## the figures, beside the machine's own limits (ARGS="--only ledger" for one part)
	@$(PY) -m tests.bench $(ARGS)

bench-peers: setup ## client and worker beside BullMQ, docket, arq and Celery, in turn (npm and pip put them into .venv-peers, 200 MB)
	@$(PY) -m tests.bench.peers $(ARGS)

bench-report: setup ## both, written to docs/benchmarks.md with pictures: 20 minutes on an idle machine (ARGS="--only drain" for one part)
	@$(PY) -m tests.bench.report $(ARGS)

sam: setup .venv-sam/.ready ## what sam deploys: the template validated, linted, built and weighed (ARCH=arm64 or x86_64)
	@SAM_CLI_TELEMETRY=0 .venv-sam/bin/sam validate --lint
	@PATH="$(CURDIR)/.venv-sam/bin:$$PATH" SAM_CLI_TELEMETRY=0 .venv-sam/bin/sam build --parameter-overrides Architecture=$(ARCH)
	@.venv/bin/duecourse built --architecture $(ARCH)

sam-test: setup .venv-sam/.ready ## the harness held against SAM, event by event; what is skipped was not run
	@PATH="$(CURDIR)/.venv-sam/bin:$$PATH" SAM_CLI_TELEMETRY=0 .venv-sam/bin/sam build --parameter-overrides Architecture=$(HERE)
	@SAM_CLI_TELEMETRY=0 $(PY) -m pytest -rs tests/local/test_harness_against_sam.py tests/repository/test_readme.py

# In a venv of its own, for it pins much; of the functions' own minor version, for it builds with the Python it finds.
.venv-sam/.ready:
	@command -v python3.11 >/dev/null || { echo "make sam needs python3.11, the functions' version" >&2; exit 2; }
	@echo "sam: .venv-sam with aws-sam-cli (about a minute)"
	@python3.11 -m venv .venv-sam
	@.venv-sam/bin/python .ci/install.py sam 'aws-sam-cli>=1.160,<2'
	@touch $@

# The machine's own architecture, whatever the template's default: the emulator's functions run here.
HERE := $(if $(filter arm64 aarch64,$(shell uname -m)),arm64,x86_64)

deployable: setup .venv-sam/.ready
	@mkdir -p .aws-sam
	@PATH="$(CURDIR)/.venv-sam/bin:$$PATH" SAM_CLI_TELEMETRY=0 .venv-sam/bin/sam build --build-dir .aws-sam/here --parameter-overrides Architecture=$(HERE) >.aws-sam/here.log 2>&1 || { cat .aws-sam/here.log; exit 1; }

localstack: deployable .venv-localstack/.ready ## the template deployed to a LocalStack here, and the stories against it
	@$(PY) -m tests.whole.localstack

e2e: deployable ## the same against AWS_ENDPOINT_URL, or an account (DUECOURSE_E2E=aws)
	@$(PY) -m pytest -m deployed -rs tests/whole/test_deployed.py tests/whole/test_project_deployed.py

# In a venv of its own, for it pins all it needs; DynamoDB Local's licence forbids handing it on, so it is fetched.
.venv-localstack/.ready: requirements/localstack.txt
	@for word in python3.11 npm java; do command -v $$word >/dev/null || { echo "make localstack needs $$word" >&2; exit 2; }; done
	@echo "localstack: .venv-localstack with LocalStack and DynamoDB Local (about a minute, 400 MB)"
	@python3.11 -m venv .venv-localstack
	@.venv-localstack/bin/python .ci/install.py localstack -r requirements/localstack.txt
	@.venv-localstack/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --editable tests/whole/localstack/plugin
	@rm -rf .venv-localstack/dynamodb && mkdir .venv-localstack/dynamodb
	@cd .venv-localstack && npm pack --silent amplify-dynamodb-simulator@2.9.30 >/dev/null
	@tar xzf .venv-localstack/amplify-dynamodb-simulator-2.9.30.tgz -C .venv-localstack/dynamodb --strip-components 2 package/emulator
	@rm .venv-localstack/amplify-dynamodb-simulator-2.9.30.tgz
	@touch $@

.PHONY: deployable localstack e2e sam sam-test help setup setup-browser rabbitmq demo up test test-matrix test-all check checks $(CHECKS:%=check-%) audit wheel reference fix bench bench-peers bench-report
