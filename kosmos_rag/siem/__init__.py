"""A wing: audit and security events for a SIEM, as OCSF."""
