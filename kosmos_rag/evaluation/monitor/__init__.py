"""The guard of recall: live questions measured again, known answers, secrets of others; and what is done about it."""
