"""The queue of work, in the same database as what the work makes: a job ends with the transaction of its result."""
