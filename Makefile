# make demo   set up, then train a translator of dates from scratch and show what it learned
# make test   set up, then run every check: lint, types, tests
# make learning  the slow tests, which train models until they must have learned; CI runs them after `make test`
# make drill  attack the commands in 10,000 ways, and report what broke; SEED=, CASES=, ONLY=, JOBS= (docs/drill.md)
# make results  write docs/results.md and the table of the README from the records of benchmarks/results.py
# make audit  ask for known vulnerabilities of the pinned versions; needs a network
PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
READY := $(VENV)/.ready
TOOLS := $(VENV)/.tools
WEB := $(wildcard web/*.json web/*.ts) $(shell find web/src -type f)
BUILT := src/glassformer/looking/built/sources.sha256
PIP := $(RUN) -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: setup demo test learning drill lint format bench results audit clean

setup: $(TOOLS) $(BUILT)

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Glassformer needs Python 3.11 or newer, not " + sys.version.split()[0] + ": make PYTHON=python3.12 …")'
	$(PYTHON) -m venv --clear $(VENV)
	$(PIP) --editable '.[studio]'
	@touch $@

$(TOOLS): $(READY)
	$(PIP) --editable '.[dev]'
	@touch $@

$(BUILT): $(TOOLS) $(WEB)
	$(RUN) hatch_build.py
	@touch $@

demo: $(READY)
	@rm -rf runs/demo
	@$(VENV)/bin/glassformer train dates --out runs/demo
	@printf '\nWatch it read and write on a page: $(VENV)/bin/glassformer studio --run runs/demo\n'
	@printf '\nA translator that was trained on more ships with the package: glassformer translate --run en-de "Where is the station?"\n  '
	@$(VENV)/bin/glassformer translate --run en-de "Where is the station?"

test: lint
	$(RUN) -m pytest --numprocesses 2 -m 'not learning'

learning: $(TOOLS) $(BUILT)
	$(RUN) -m pytest --numprocesses 2 -m learning

drill: $(TOOLS)
	PYTHONPATH=tests $(RUN) -m drill --seed $(or $(SEED),0) --cases $(or $(CASES),10000) --jobs $(or $(JOBS),2) --report runs/drill.json $(if $(ONLY),--only $(ONLY))

lint: $(TOOLS) $(BUILT)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(RUN) hatch_build.py check

format: $(TOOLS)
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

bench: $(TOOLS)
	$(RUN) benchmarks/decode.py
	$(RUN) benchmarks/translate_cpu.py
	$(RUN) benchmarks/train.py
	$(RUN) benchmarks/generate.py

results:
	@$(RUN) benchmarks/results.py write $(if $(CHECK),--check)

audit:
	@$(PYTHON) tools/audit.py

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist web/node_modules $(dir $(BUILT))
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
