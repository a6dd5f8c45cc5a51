"""The REST server of a Connect worker."""
