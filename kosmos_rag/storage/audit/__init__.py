"""The audit log. Seals reveal later changes.

A result is recorded before its reader gets it.
"""
