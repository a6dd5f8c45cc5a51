"""What will go wrong before it does: configs and clusters are looked at, findings with their remedies come out."""
