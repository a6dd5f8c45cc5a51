"""Tables for Spark programs: what Kafka holds about flows, as rows."""
