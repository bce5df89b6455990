# What a newcomer types. Everything lives in this checkout: .venv, .demo, build.
PYTHON ?= python3
PY := .venv/bin/python
# A container may set this; hundreds of short Python processes would then compile all they import.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help environment setup demo docs servers s3a-jars s3a-archive older-spark older-airflow optional-providers lake-readers lake-jars delta-spark test tests test-s3a test-older-spark other-sparks screenshots torture proof airflow-life dagster-life growth fast-tier bench bench-quick bench-papers lint lock clean

help:            ## What can be made
	@sed -n 's/^\([a-z0-9-]*\):.*## */make \1\t/p' $(MAKEFILE_LIST)

environment:
	@$(PYTHON) tools/bootstrap.py --no-class-archive

setup: environment ## .venv, its packages, Java; quick when nothing changed
	@$(PYTHON) tools/bootstrap.py

demo: setup $(if $(filter-out zero_rename,$(COMMITTER)),s3a-jars) ## Load real data through Airflow and Spark into an embedded S3; COMMITTER=magic by Hadoop's
	@COMMITTER=$(COMMITTER) $(PY) -m demo

servers: environment ## The S3 servers of the tests: S3Mock (60 MB, once), Ceph by apt where you are root
	@$(PY) tools/s3_servers.py

s3a-jars: environment ## Hadoop's jars for tests/s3a/real, 700 MB, once
	@$(PY) tools/fetch_s3a_jars.py

older-spark: environment ## The oldest Spark that save() runs on, 700 MB, once
	@$(PY) tools/environments.py older-spark

older-airflow: environment ## The oldest Airflow that the provider runs on, 600 MB, once
	@$(PY) tools/environments.py older-airflow

optional-providers: environment ## Airflow's providers for Kubernetes, Databricks and OpenLineage, 93 MB, once
	@$(PY) tools/environments.py optional-providers

lake-readers: environment ## delta-rs, Polars and DuckDB, which read and write our Delta tables in tests, 600 MB, once
	@$(PY) tools/environments.py lake-readers

lake-jars: environment ## Spark 4.1 and Delta's jars for it, for tests of Delta tables, 1.4 GB, once
	@$(PY) tools/environments.py spark-4.1
	@$(PY) tools/fetch_lake_jars.py

test: lint docs tests ## Lint, types, the docs and all tests; those of s3a/real where make s3a-jars was run

s3a-archive: setup s3a-jars # halves the start of JVMs with Hadoop's jars
	@$(PY) tools/s3a_class_archive.py

tests: setup $(if $(CI),servers s3a-archive older-spark older-airflow optional-providers lake-readers lake-jars) # at once with lint where there are --jobs
	@$(PY) -m pytest --numprocesses 4 --dist loadscope --no-loadscope-reorder --durations=20 --durations-min=5

test-s3a: s3a-archive ## All tests with Hadoop's S3A committers, on a real S3 server
	@$(PY) tools/s3_servers.py s3mock
	@S3A_WHOLE=1 $(PY) -m pytest tests/s3a/real --numprocesses 3 --dist loadscope --no-loadscope-reorder --durations=20 --durations-min=5

test-older-spark: setup older-spark ## All tests of save() on the oldest Spark
	@OLDER_SPARK_WHOLE=1 $(PY) -m pytest tests/spark/saving/test_older_spark.py

other-sparks: setup ## save() and load() on Spark 4.0 and 4.1, classic and Connect; 700 MB each, once
	@$(PY) tools/environments.py spark-4.0 spark-4.1
	@OTHER_SPARKS=1 $(PY) -m pytest -v tests/spark/saving/test_other_sparks.py

delta-spark: setup lake-readers lake-jars ## Delta tables beside Delta on Spark 4.1, all of it, 1,000 commits beside delta-rs and 5,000 of one table
	@DELTA_SPARK=1 $(PY) -m pytest -v tests/tables/test_delta_spark.py tests/tables/test_stock_spark.py tests/tables/test_engines.py tests/torture/test_beside_engines.py tests/tables/test_conditional_log_store.py tests/torture/test_beside_log_store.py

screenshots: setup ## The pictures in docs/images, by headless Chromium from a real Airflow and Dagster (apt: chromium-driver)
	@$(PY) -m uv pip install --quiet --target build/browser -r tools/locks/browser.lock
	@$(PY) -m demo.pictures
	@PYTHONPATH=tests $(PY) -m dagster_life.pictures

torture: setup   ## Kill writers and check every row; KILLS=200, SERVER=ceph. Or at each request: EACH=all, EACH_DELTA=all. Or faults of the store: FAULTS=all. Or many at once: CROWDS=all
	@PYTHONPATH=tests $(PY) -m torture --kills $(or $(KILLS),200) $(if $(EACH),--each "$(EACH)") $(if $(EACH_DELTA),--each-delta "$(EACH_DELTA)") $(if $(FAULTS),--faults $(FAULTS)) $(if $(CROWDS),--crowds $(CROWDS))

airflow-life: setup $(if $(SCENES),,s3a-jars) ## The examples in a whole Airflow: kills, restarts, clears, collisions. SCENES="cleared hourly"
	@PYTHONPATH=tests $(PY) -m airflow_life $(SCENES)
	@$(if $(SCENES),,AIRFLOW_WHOLE=1 $(PY) -m pytest tests/operators/test_recomputing.py)

dagster-life: setup ## The examples in a whole Dagster: dg, a backfill with a hole, kills, a late run. SCENES="components backfill"
	@PYTHONPATH=tests $(PY) -m dagster_life $(SCENES)

proof: setup     ## What is too long for make test; writes docs/proof.md. PARTS="simulation log walk torture each each_delta crowds faults s3a engines airflow"
	@PYTHONPATH=tests $(PY) -m proof $(PARTS)

growth: setup    ## How a table's records grow, in bytes, requests and memory; writes docs/performance.md
	@PYTHONPATH=tests:. $(PY) benchmarks/growth.py --write

fast-tier: setup ## Three stages by a fast store, durable only, and with the fast one lost; three minutes
	@PYTHONPATH=tests:. $(PY) benchmarks/fast_tier.py

BENCH = PYTHONPATH=benchmarks:tests:. $(PY) -m bench
bench: setup     ## Loads and reads beside their peers', 40 minutes; writes docs/performance.md. ONLY="one-file replace"
	@$(BENCH) $(if $(ONLY),--workloads $(ONLY),--write) $(if $(SERVER),--server $(SERVER))
	@$(if $(ONLY),,PYTHONPATH=tests:. $(PY) benchmarks/fast_tier.py --write)

bench-quick: setup ## A part of it in five minutes; a line of JSON with the ratios at its end
	@$(BENCH) --quick --rounds 1 --minutes 4

bench-papers: setup ## The tables of Stocator's paper beside ours, in ten minutes; writes docs/papers.md
	@$(BENCH) --papers --rounds 2 --minutes 8 --write

lint: environment ## ruff and pyrefly
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(PY) -m pyrefly check --no-progress-bar --min-severity error

docs: environment ## The site of docs/, in build/site; a broken link or docstring fails
	@$(PY) -m sphinx --quiet --fresh-env --fail-on-warning --keep-going --doctree-dir build/doctrees docs build/site
	@echo "docs: build/site/index.html"

lock: setup      ## Pin the newest versions that pyproject.toml allows
	@.venv/bin/uv pip compile pyproject.toml --extra dev --universal --python-version 3.11 --upgrade --generate-hashes \
	  --no-emit-index-url --no-emit-find-links --custom-compile-command "make lock" \
	  -o requirements.lock --quiet

clean:           ## Remove all that the other targets made
	rm -rf .venv .demo build dist *.egg-info .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
