"""The control plane: who runs what."""
