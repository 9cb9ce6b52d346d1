# Needs Python >= 3.10 and make; everything else goes into .venv.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
DEMO   := $(VENV)/.demo
READY  := $(VENV)/.ready

.PHONY: help demo test test-slow test-loggers torture drop-in lint docs dist compat bench clean
help:  ## show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 15

# two steps into one environment, each repeated only when what is to be installed has changed:
# what the demo needs, and what tests and development add
$(DEMO): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("acc_rl needs Python >= 3.10, this is " + sys.version.split()[0] if sys.version_info < (3, 10) else 0)'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[mujoco,report,video]'
	@touch $@

$(READY): $(DEMO)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $@

demo: $(DEMO)  ## teach a cheetah to run (about four minutes), draw the curves, film it, say what to try next
	$(BIN)/python examples/demo.py

lint: $(READY)  ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: lint  ## ruff, mypy and the default tests (under 10 minutes on 2 cores)
	$(BIN)/pytest

test-slow: $(READY)  ## the long learning runs
	$(BIN)/pytest -m slow

# heavy libraries in an environment of their own, which sees the packages of the project's
.venv-loggers/.ready: $(READY)
	$(PYTHON) -m venv .venv-loggers
	$(BIN)/python -c 'import site; print(site.getsitepackages()[0])' > "$$(.venv-loggers/bin/python -c 'import site; print(site.getsitepackages()[0])')/project.pth"
	.venv-loggers/bin/pip install --quiet --constraint constraints.txt wandb==0.31.0 mlflow-skinny==3.17.2 sqlalchemy alembic
	@touch $@

test-loggers: .venv-loggers/.ready  ## the examples for Weights & Biases and MLflow, with these libraries
	.venv-loggers/bin/python -m pytest -n 0 -m loggers tests/loggers

torture: $(READY)  ## kills, failing disks, damage in the large form; writes the table in docs/reliability.md
	$(BIN)/python tests/torture.py --write docs/reliability.md

docs: $(READY)  ## the documentation as a site; then: python3 -m http.server -d site
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

dist: $(READY)  ## wheel and source distribution in dist/, tried in fresh environments
	$(BIN)/python tools/dist.py

compat: $(READY)  ## a part of the tests with the oldest and newest SB3, Gymnasium and MuJoCo
	$(BIN)/python tools/compat.py

drop-in: $(READY)  ## SB3's and sb3-contrib's tests with our classes (SB3=checkout CONTRIB=checkout); writes docs/from_sb3.md
	$(BIN)/python tests/drop_in.py --sb3 $(SB3) --contrib $(CONTRIB) --write docs/from_sb3.md

# a peer with dependencies of its own, in an environment of its own
.venv-sbx/.ready:
	$(PYTHON) -m venv .venv-sbx
	.venv-sbx/bin/pip install --quiet torch==2.13.0 mujoco==3.3.0 sbx-rl==0.28.0 'gymnasium[mujoco]==1.4.0' 'numpy<2.5'
	@touch $@

bench: $(READY) .venv-sbx/.ready  ## speed against peers (half an hour); writes docs/performance.md
	$(BIN)/python benchmarks/run_all.py --sbx .venv-sbx/bin/python

clean:  ## remove the environment and caches
	rm -rf $(VENV) build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis
