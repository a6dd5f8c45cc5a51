"""`python -m sparkmirror` is the command `sparkmirror`."""

from sparkmirror.cli import main

main()
