"""Assets that Spark applications load: what these are told, who submits them, and a component."""
