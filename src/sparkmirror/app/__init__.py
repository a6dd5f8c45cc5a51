"""The file that spark-submit runs. It has a folder of its own, since Python puts that folder in front of its path."""
