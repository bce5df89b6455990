"""``make screenshots``: the page in Airflow, as headless Chromium shows it, for the docs."""
