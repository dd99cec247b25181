"""The HTTP service: who asks is found out here, and row-level security does the rest.

No module but those that serve imports FastAPI: keys are made on the command line without the extra.
"""
