"""Questions that find nothing: recorded, grouped, asked again, and shown as gaps of the documents.

`Gaps` of `kosmos_rag.evaluation.gaps.gaps` is the entry.
"""
