"""From a source to shards: reading, encoding by public bounds, dealing records to silos, holding some out.

Start with `_dataset.prepare`.
"""
