"""Connect's single message transforms, as far as they make sense on bytes. Pure."""
