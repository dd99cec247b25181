"""Questions about four documentation trees, as people ask them: ranking, context, answers and refusals."""
