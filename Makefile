# Each target sets up all it needs in .venv, with the exact versions of constraints.txt.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test check clean

demo: .venv/.installed ## pretrain under four schedules at equal budget, fine-tune, score, report
	$(BIN)/antiphon run studies/pocket.yaml

test: .venv/.installed ## the tests
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2

check: .venv/.installed ## style, types, import contract
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports

.venv/.installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Antiphon needs Python 3.11 or newer; name one with: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[test,check]'
	touch $@

clean: ## remove the environment; results in runs/ stay
	rm -rf .venv
