"""Page in Airflow about the tables of a connection: read only, with Airflow's permissions."""
