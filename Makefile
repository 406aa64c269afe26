# `make` alone lists what there is. Every target installs what it needs into .venv by itself.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
# xdist workers; the suite is sized for two cores
JOBS ?= 2
# FETCH=no: `make test` neither fetches nor builds components; tests that need a missing one are skipped
FETCH ?= yes
# compiled once before the tests, which start many processes; an environment may keep Python from doing that
PACKAGES := storage coordinator services client wire record_batches spark_connector
PREPARE := infra/components.py prepare $(if $(filter no,$(FETCH)),--dry-run)

.DEFAULT_GOAL := help
.PHONY: help demo serve cluster test check bench soak fuzz chaos year format clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

GENERATED_FROM := coordinator/tidelog/coordinator/etcd/rpc.proto record_batches/tidelog/record_batches/records.c
$(VENV)/.run: pyproject.toml constraints.txt hatch_build.py $(wildcard build_steps/*.py) $(GENERATED_FROM)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Tidelog needs Python 3.11 or newer; name one with PYTHON=..." >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing Tidelog and Spark into $(VENV): half a gigabyte to fetch, a minute or two ..."
	@$(INSTALL) -e '.[spark]'
	@touch $@

$(VENV)/.dev: $(VENV)/.run
	@echo "installing the development tools into $(VENV): a minute or two ..."
	@$(INSTALL) -e '.[spark,dev]'
	@touch $@

demo: $(VENV)/.run ## a broker, a million events, a crash, a fetch and two Spark queries
	@$(BIN)/python -m demo $(ARGS)

serve: $(VENV)/.run ## a broker on ./tidelog-data, http://127.0.0.1:8080
	@$(BIN)/tidelog serve

cluster: $(VENV)/.run ## three brokers, three etcd and MinIO on this machine, until Ctrl-C
	@$(BIN)/python -m infra.cluster $(ARGS)

test: $(VENV)/.dev ## the whole suite, with the real components that this machine has
	@$(BIN)/python $(PREPARE)
	$(if $(ARGS),,@echo "The whole suite takes about half an hour on two cores; \`make test ARGS=tests/storage\` runs a part of it.")
	@$(BIN)/python -m compileall -q $(PACKAGES)
	@$(BIN)/python -m pytest -n $(JOBS) --dist loadfile $(ARGS)

check: $(VENV)/.dev ## format, lint, types and layers; quick
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo
	@$(BIN)/python -m infra.alert_rules --check

format: $(VENV)/.dev ## reformat with ruff, and write the generated files again
	@$(BIN)/ruff check --fix --quiet .
	@$(BIN)/ruff format --quiet .
	@$(BIN)/python -m infra.alert_rules

bench: $(VENV)/.dev ## compare with Kafka: a table, JSON and a picture in artifacts/
	@$(BIN)/python -m benchmarks $(ARGS)

soak: $(VENV)/.dev ## the long tests: simulation seeds, fuzzing, faults (MINUTES=10)
	@$(BIN)/python $(PREPARE)
	@TIDELOG_SOAK_MINUTES=$(or $(MINUTES),10) $(BIN)/python -m pytest -m soak --timeout 0 $(ARGS)

fuzz: $(VENV)/.dev ## ten million mutated record batches through the C library, in guarded memory
	@$(BIN)/python -m tests.record_batches.fuzz --jobs $(JOBS) $(ARGS)

chaos: $(VENV)/.dev ## run a cluster under faults and judge it; a report in artifacts/chaos (MINUTES=10)
	@$(BIN)/python -m tests.chaos --minutes $(or $(MINUTES),10) $(ARGS)

year: $(VENV)/.dev ## fill a bucket with a year of events and check it; a report in artifacts/year
	@$(BIN)/python -m tests.year $(ARGS)

clean: ## remove the files of all targets (downloads in the user's cache stay)
	@rm -rf $(VENV) artifacts .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache dist spark-warehouse
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
