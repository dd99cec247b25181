"""Parse each file in a confined child process.

It has little memory, little time, no network and no secrets.

It has little memory, little time, no network and no secrets.

`client` sends a file, `fork_server` starts the process (`zygote`) that forks, `worker` runs in the child, `limits`
confines it, `protocol` is the wire format.
"""
