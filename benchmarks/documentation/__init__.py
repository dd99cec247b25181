"""Questions about four documentation trees: ranking, context, answers and refusals."""
