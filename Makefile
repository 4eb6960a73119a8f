# `make demo` and `make test` set everything up in .venv on a machine with Python 3.11 or newer, make and git.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# Two processes of one thread each: each has a half of the files, and takes tests of the other when it is through.
TESTS  := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal
# Modules are compiled when they are first imported, which most never are; and once, not in every program.
PIP    := $(BIN)/pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt
export PYTHONDONTWRITEBYTECODE :=

.PHONY: answer demo explore demo-seeds picture explorer-picture tatoeba-de-en tutorial freedom test slow soak lint setup setup-dev setup-explore clean help

demo: setup ## train four models that cut German numbers in different ways, and show their cuts
	$(BIN)/caesura demo --out runs/demo
	@echo 'Next: make explore opens these models in a browser, where you can move their cuts.'

# The models of the demo that are there, after the one that comes with Caesura; a model's folder has its weights.
DEMOS = $(patsubst %/model.safetensors,%,$(wildcard runs/demo/*/model.safetensors))
explore: setup-explore ## move cuts in a browser, with the included model and those of the demo if you have them
	$(BIN)/caesura explore tatoeba-de-en $(DEMOS) --open

demo-seeds: setup ## the demo for three seeds: every model must reach what caesura/experiments/demo.py wants of it
	$(BIN)/caesura demo --seeds 1,2,3 --out runs/demo-seeds

REPORT := runs/demo/report/report.html
picture: setup-dev ## make docs/report.png from the report of the demo, which it trains if that is not there; needs a Chromium
	rm -f $(REPORT)
	$(BIN)/caesura demo --out runs/demo || test -s $(REPORT)
	$(BIN)/python docs/report_picture.py $(REPORT)

explorer-picture: setup-dev ## make docs/explorer.png and docs/explorer.gif from the explorer's page; needs a Chromium
	OMP_NUM_THREADS=1 $(BIN)/python docs/explorer_picture.py

tutorial: setup ## run docs/tutorial.ipynb, and write its outputs into it
	OMP_NUM_THREADS=1 MPLBACKEND=Agg $(BIN)/python -W error docs/run_notebook.py docs/tutorial.ipynb

tatoeba-de-en: setup ## train anew the model that comes with Caesura, from data/tatoeba-de-en; wants a GPU
	$(BIN)/caesura train recipes/$@.yaml --out runs/$@
	$(BIN)/python -m caesura.training.release runs/$@ recipes/$@.md caesura/models/$@

SEGMENTER := model.segmenter
freedom: setup ## draw the tables and figures of docs/results/freedom.md from its metrics
	cd docs/results/freedom && for grid in *.json; do \
	  $(CURDIR)/$(BIN)/caesura sweep --draw $$grid --out $${grid%.json} || exit; done
	cd docs/results/freedom && $(CURDIR)/$(BIN)/caesura sweep --draw tau-bias.json variations.json --out eps \
	  --over $(SEGMENTER).epsilon=0.01,0.1,0.3 --over $(SEGMENTER).tau=0.03,0.3 --over $(SEGMENTER).halting_bias=1 \
	  --over $(SEGMENTER).act_size=50 --over training.normalization=symbols
	cd docs/results/freedom && $(CURDIR)/$(BIN)/caesura sweep --draw tau-bias.json variations.json fixed.json \
	  --out chosen-or-not --over $(SEGMENTER).learn_halting=true,false
	cd docs/results/freedom && $(CURDIR)/$(BIN)/caesura sweep --draw telling.json fixed-long.json \
	  --out chosen-or-not-long --over $(SEGMENTER).learn_halting=true,false
	cd docs/results/freedom && $(CURDIR)/$(BIN)/caesura sweep --draw tau-bias.json variations.json fixed.json \
	  fixed-variations.json words.json --out words-or-not --over '$(SEGMENTER).cut_after=""," "'
	$(BIN)/python benchmarks/pull.py --draw docs/results/freedom/pull/pull.json --out docs/results/freedom/pull > /dev/null

answer: setup ## draw the tables, figures and the appendix of docs/results/answer from its metrics
	@ls docs/results/answer/metrics/*.jsonl > /dev/null 2>&1 || { echo "no results yet: recipes/answer/reproduce.yaml says how to get them"; exit 0; }; \
	  $(BIN)/caesura reproduce answer --draw --out docs/results/answer

test: setup-dev ## the quick tests
	$(TESTS) -m "not slow and not soak"

slow: setup-dev ## the tests that take longer: real text, learning
	$(TESTS) -m "slow and not soak"

soak: setup-dev ## kills, damage, bad text, memory and ACT-DEC at length
	$(TESTS) -rPs -m soak

lint: setup-dev ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

setup: $(VENV)/.run ## the program in .venv
setup-dev: $(VENV)/.dev
setup-explore: $(VENV)/.explore

$(VENV)/.explore: EXTRA := [explore]
$(VENV)/.dev: EXTRA := [dev]
$(VENV)/.run $(VENV)/.explore $(VENV)/.dev: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("Caesura needs Python 3.11 or newer; try make PYTHON=python3.12" if sys.version_info < (3, 11) else 0)'
	@test -x $(BIN)/pip || { echo "setting up $(VENV) (a minute or two) ..."; $(PYTHON) -m venv $(VENV); }
	@$(PIP) -e ".$(EXTRA)"
	@touch $(VENV)/.run $@

clean: ## remove the environment and what tools leave behind; trained models in runs/ stay
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/'
