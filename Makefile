# What a person needs to know: `make setup`, `make test`, `make demo`. Everything lands in .venv and build.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PYTHON_STAMP := $(VENV)/.sparkmirror-installed
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation
KAFKA_VERSION := $(shell sed -n 's|.*<kafka.version>\(.*\)</kafka.version>.*|\1|p' pom.xml)
OLD_BROKERS := 2.4.1 2.8.2 3.9.1
SPARK ?= 3.5.9 4.0.5 4.1.4 4.2.1 4.3.0
# What copies; and what passes through queries or reads tables, which need PySpark 4.
COPY_TESTS := $(addprefix tests/broker/test_,run.py exactly_once.py twins.py spark_cluster.py)
BROKER_TESTS := tests/broker/versions tests/broker/profiles
SLOW_TESTS := tests/unit tests/broker $(BROKER_TESTS:%=--ignore %) --timeout 900
QUERY_TESTS := $(filter-out %_chaos.py,$(wildcard tests/broker/test_query*.py)) tests/broker/test_tables.py
HADOOP_VERSION := $(shell sed -n 's|.*<hadoop.version>\(.*\)</hadoop.version>.*|\1|p' pom.xml)
HADOOP_STAMP := build/hadoop/$(HADOOP_VERSION)/.fetched
KAFKA_STAMP := build/kafka/$(KAFKA_VERSION)/.fetched

SBOM_TOOL := build/sbom/tools/bin/cyclonedx-py
LOCK := uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-header $(UPGRADE)

.DEFAULT_GOAL := help
.PHONY: help setup check format test slow brokers spark-matrix peer chaos demo bench sbom lock clean

help:
	@sed -n 's/^\([a-z-]*\):.*## /  make \1	/p' Makefile

setup: $(PYTHON_STAMP) $(KAFKA_STAMP) ## install everything (a no-op when up to date)

check: $(PYTHON_STAMP) ## lint, types, layers
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(PYTHON_STAMP) ## let ruff rewrite the code
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

# Broker tests wait more than they compute: two of them run at a time, each with clusters of its own.
test: setup check build/kafka/2.4.1/.fetched ## check, then the tests (real brokers)
	$(BIN)/pytest tests/unit tests/broker -m "not slow" -n 2 --dist loadfile

slow: setup build/kafka/2.4.1/.fetched build/kafka/2.8.2/.fetched $(HADOOP_STAMP) ## the tests that make test leaves out
	$(BIN)/pytest $(SLOW_TESTS) -m "slow and not alone" -n 2 --dist loadfile
	$(BIN)/pytest $(SLOW_TESTS) -m "slow and alone"

brokers: setup $(OLD_BROKERS:%=build/kafka/%/.fetched) ## older brokers, and those of other makes (PAIR=2.4.1-to-4.3.1, PAIR=redpanda: only these)
	$(BIN)/pytest $(BROKER_TESTS) --timeout 900 -n 2 $(if $(PAIR),-k $(PAIR))

# One pytest for each: the package that is first on the path is the one of the driver and of the executors.
spark-matrix: setup $(SPARK:%=build/spark/%/.fetched) ## copying and queries on each PySpark (SPARK=4.0.5: one)
	@failed=; for version in $(SPARK); do \
		echo "== PySpark $$version"; \
		case $$version in 3.*) tests="$(COPY_TESTS)";; *) tests="$(QUERY_TESTS) $(COPY_TESTS)";; esac; \
		run="env PYTHONPATH=$(CURDIR)/build/spark/$$version $(BIN)/pytest $$tests --timeout 900"; \
		$$run -m "not alone" -n 2 --dist loadfile && $$run -m alone || failed="$$failed $$version"; \
	done; test -z "$$failed" || { echo "Failed on PySpark$$failed"; exit 1; }

peer: setup ## beside real Java workers, classes and clients
	$(BIN)/pytest tests/peer --timeout 900

chaos: export CHAOS_LONG := 1
chaos: setup ## the long test that kills things
	$(BIN)/pytest tests/broker -m chaos --timeout 3600

demo: setup ## two clusters, a producer and a mirror, live
	@$(BIN)/python -m sparkmirror.tools.demo

bench: export QUICK := $(QUICK)
bench: setup ## side by side with MirrorMaker 2 (QUICK=1: short)
	$(BIN)/python -m bench

sbom: $(SBOM_TOOL) ## what runs, as a CycloneDX file: build/sbom/sparkmirror.cdx.json
	$(SBOM_TOOL) requirements requirements.lock --pyproject pyproject.toml --mc-type application \
		--output-reproducible --of JSON -o build/sbom/sparkmirror.cdx.json

lock: ## compile the locks of pyproject.toml again (needs uv; UPGRADE=--upgrade: newest versions)
	$(LOCK) --extra aws pyproject.toml -o requirements.lock
	$(LOCK) -c requirements.lock --extra aws --group dev pyproject.toml -o requirements-dev.lock
	$(LOCK) --group sbom -o requirements-sbom.lock

clean: ## remove what setup and the tests made
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find src tests bench -name __pycache__ -type d -prune -exec rm -rf {} +

# Every file is named by its hash in the lock, also what builds PySpark's source release: so that comes first.
$(PYTHON_STAMP): requirements-dev.lock pyproject.toml
	$(need_tools)
	$(PYTHON) -m venv $(VENV)
	@sed -n '/^setuptools==/,/[^\\]$$/p' requirements-dev.lock > $(VENV)/setuptools.lock
	$(PIP) --require-hashes -r $(VENV)/setuptools.lock
	$(PIP) --require-hashes -r requirements-dev.lock
	$(PIP) --editable .
	@touch $@

$(SBOM_TOOL): requirements-sbom.lock
	rm -rf build/sbom/tools
	$(PYTHON) -m venv build/sbom/tools
	build/sbom/tools/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $<

# Of older versions the broker alone: make build/kafka/2.4.1/.fetched
build/kafka/%/.fetched: pom.xml
	$(need_tools)
	rm -rf $(@D)
	mvn -q -B -Dkafka.version=$* $(if $(filter $(KAFKA_VERSION),$*),,-Pold-broker) dependency:copy-dependencies
	@touch $@

# YARN, for the tests on it.
$(HADOOP_STAMP): pom.xml
	$(need_tools)
	rm -rf $(@D)
	mvn -q -B -Phadoop dependency:copy
	@touch $@

build/spark/%/.fetched: $(PYTHON_STAMP)
	rm -rf $(@D)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --target $(@D) pyspark==$*
	@touch $@

# Expanded when a recipe needs it: says in one line what is missing, before anything has been touched.
need_tools = $(need_python)$(need_java)$(need_maven)
need_python = $(if $(shell $(PYTHON) -c 'import ensurepip, sys, venv; print("ok" if sys.version_info >= (3, 11) else "")' 2>&1 | grep -x ok),,$(error Python 3.11 or later with venv is needed: install it (Debian: python3 and python3-venv), or name it with PYTHON=/path/to/python))
need_java = $(if $(shell java -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p' | awk '$$1 >= 17'),,$(error Java 17 or later is needed: install a JDK (Debian: openjdk-17-jdk-headless)))
need_maven = $(if $(shell command -v mvn),,$(error Maven is needed to fetch Kafka: install it (Debian: maven)))
