"""From traces to judged questions: feedback and clicks become candidates, which a person accepts or rejects.

`JudgedQuestions` of `kosmos_rag.evaluation.judging.questions` is the entry.
"""
