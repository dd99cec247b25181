"""The audit log: a result is recorded before its reader gets it; seals reveal later changes."""
