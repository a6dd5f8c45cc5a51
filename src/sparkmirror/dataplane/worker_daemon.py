"""Spark's Python daemon with the copy task already imported: workers are forked, so they start at once and share its memory."""

from __future__ import annotations

from pyspark.daemon import manager

import sparkmirror.dataplane.worker  # noqa: F401

if __name__ == "__main__":
    manager()
