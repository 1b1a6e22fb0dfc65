"""What switches count at their ports: asked for once, told to other apps, to the database, to Prometheus."""
