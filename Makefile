# Two commands do everything on a machine with Python 3.11+ and make: `make demo` and `make test`.
PYTHON ?= python3
BIN := .venv/bin
EXTRAS := dev,certify,lab,cluster,probe,onnx,web,docs
# uv ignores pip's settings, so it is told where local wheels lie; where uv fails, pip does the same work slower.
define install
	@UV_FIND_LINKS="$${PIP_FIND_LINKS:-}" $(BIN)/uv pip install --quiet --python $(BIN)/python -c constraints.txt $(1) \
	  || $(BIN)/python -m pip install --quiet -c constraints.txt $(1)
endef

.PHONY: demo test lint types shapes unit chromium docs mutants nightly bench clean help

help:
	@echo "make demo   set up .venv, run the tour, write out/demo/report.html"
	@echo "make test   set up .venv with the test tools, run lint, types and every test"
	@echo "make lint types shapes unit   the four parts of make test"
	@echo "make docs   build the site in out/site: strict, offline (open out/site/index.html)"
	@echo "make mutants  change the code that proves things in 600 places and run the tests on each (about an hour)"
	@echo "make nightly  run the quick preset of every table and figure, one page, and the long examples of the pages"
	@echo "make bench  measure again what the README's tables are made from (slow)"
	@echo "make clean  remove .venv, out and caches"

demo: .venv/.installed
	@echo "== infoflow demo"
	@$(BIN)/infoflow demo

test: lint types shapes unit

lint: .venv/.installed-dev
	@echo "== ruff"
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check --quiet .

types: .venv/.installed-dev
	@echo "== mypy"
	@$(BIN)/mypy

# The explorer's tests drive Debian's Chromium; where it is missing and cannot be had, they skip with the reason.
chromium:
	@command -v chromium >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null \
	  && echo "== installing chromium" && { apt-get install -y -qq chromium >/dev/null 2>&1 \
	  || { apt-get update -qq && apt-get install -y -qq chromium; } >/dev/null 2>&1; }; } \
	  || echo "chromium could not be installed; the tests of the explorer's page will skip"

shapes: .venv/.installed-dev
	@echo "== shapes"
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile --shapes tests/flow tests/nn tests/targets

unit: .venv/.installed-dev chromium
	@echo "== pytest"
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile

.venv/bin/python:
	@echo "== creating .venv"
	@$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 11), "infoflow needs Python 3.11 or later"'
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet uv 2>/dev/null || echo "uv could not be installed; using pip instead"

.venv/.installed: .venv/bin/python pyproject.toml constraints.txt
	@echo "== installing infoflow (about half a minute)"
	$(call install,-e ".[certify]")
	@$(BIN)/python -c 'import torch; print("torch", torch.__version__, "(CUDA build)" if torch.version.cuda else "(CPU build)")'
	@touch $@

.venv/.installed-dev: .venv/.installed
	@echo "== installing the test tools and extras: $(EXTRAS)"
	$(call install,-e ".[$(EXTRAS)]")
	@touch $@

mutants: .venv/.installed-dev
	@OMP_NUM_THREADS=1 $(BIN)/python benchmarks/mutants.py

nightly: .venv/.installed-dev
	@echo "== every quick preset, one page"
	@rm -rf out/nightly
	@$(BIN)/infoflow reproduce all --preset quick --out out/nightly
	@echo "== the long examples of README and docs"
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m nightly tests/test_pages.py

docs: .venv/.installed-dev
	@echo "== the site"
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo "out/site/index.html"

bench: .venv/.installed-dev
	@for file in benchmarks/*.py; do case $$file in */_*) ;; *) echo "== $$file"; $(BIN)/python $$file || exit 1;; esac; done

clean:
	rm -rf .venv out .pytest_cache .mypy_cache .ruff_cache .hypothesis
