"""Model servers over HTTP: address and key, deadlines, retries."""
