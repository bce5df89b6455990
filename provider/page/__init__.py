"""A page in Airflow on the tables of a connection: read only, by Airflow's own permissions."""
