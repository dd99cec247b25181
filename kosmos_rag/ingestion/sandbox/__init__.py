"""Parse each file in a process of its own, with little memory, little time and nothing to steal.

`client` asks, `helper` keeps the process that forks (`zygote`), `worker` is what a fork does, `confine` is what it
may not do, `wire` is how they talk.
"""
