"""Which topics are copied and what they are called on the other side."""
