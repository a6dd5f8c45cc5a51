"""How source offsets and target offsets belong together."""
