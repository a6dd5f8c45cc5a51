"""The wire: brokers, requests, batches, records."""
