"""A wing: users and groups of a tenant by SCIM 2.0 (RFC 7643, RFC 7644)."""
