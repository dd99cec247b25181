"""The life of the indexes: built when a tenant has grown, tuned by measurement, merged, rebuilt, cleaned up."""
