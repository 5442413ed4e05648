"""The log for people and programs that ask what happened: found, followed, counted, verified."""
