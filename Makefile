# Every target sets up what it needs: a virtual environment in .venv with pinned versions.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: run test clients lint docs paper wheel bench peers clean

run: $(READY)
	$(BIN)/bayesdiv compare digits --noise 0.5 --epochs 40 --batch_size 64

test: lint
	$(BIN)/python -m pytest -q -n 2

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q -p no:cacheprovider tests/test_house.py

# One thread: the tutorials are small, and threads that wait for each other count as computing.
docs: $(VENV)/.docs
	PYTHONPATH=. NO_MKDOCS_2_WARNING=1 OMP_NUM_THREADS=1 $(BIN)/mkdocs build --strict
	$(BIN)/python -m pytest -q -m site tests/test_site.py

# The tables and figures of the paper, from the committed results, into reproduced/.
paper: $(READY)
	$(BIN)/python -m reproduction all

# A wheel in environments of its own: the library without the extra, then the command line.
wheel: $(READY)
	PYTHON=$(PYTHON) bash tests/wheel.sh

bench: $(READY)
	$(BIN)/python benchmarks/divergence.py

# The library inside other people's networks and trainers, in an environment of its own.
clients: .clients/.ready
	.clients/bin/python -m pytest -q -n 2 tests/clients

# Other libraries pin other versions of torch and numpy: they get an environment of their own.
peers:
	PYTHON=$(PYTHON) bash benchmarks/peers.sh

clean:
	rm -rf $(VENV) .clients .peers .transformer-peers site .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	PIP_CONSTRAINT=constraints.txt $(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@

$(VENV)/.docs: $(READY)
	PIP_CONSTRAINT=constraints.txt $(BIN)/python -m pip install --quiet --editable '.[docs]'
	touch $@

.clients/.ready: pyproject.toml constraints.txt constraints-clients.txt tests/clients/peers.txt
	$(PYTHON) -m venv .clients
	PIP_CONSTRAINT='constraints.txt constraints-clients.txt' .clients/bin/python -m pip install --quiet --editable '.[clients]'
	.clients/bin/python -m pip install --quiet --no-deps --requirement tests/clients/peers.txt
	touch $@
