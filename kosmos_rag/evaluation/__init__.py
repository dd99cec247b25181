"""A wing: evaluations with judged questions, experiments on live queries, and the recall monitor."""
